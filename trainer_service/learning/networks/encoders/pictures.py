"""Picture encoders: map [B, C, H, W] with values in [0, 1] to the body's number of hidden units.

The five of ML-Agents: ``simple`` and ``match3``, ``nature_cnn`` after Mnih et al. 2015 (doi:10.1038/nature14236),
``resnet`` after Espeholt et al. 2018 (IMPALA, arXiv:1802.01561), and ``fully_connected``. Convolutions have torch's
initialization; the dense layer is Kaiming-normal with the gain of a rectifier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.network import ENCODER_PLUGINS
from trainer_service.learning.networks.encoders.layers import kaiming_linear
from trainer_service.plugins import guarded
from unity_bridge.errors import PluginError
from unity_bridge.specs import ObservationSpec

_RECTIFIER_GAIN = 1.41
_RESNET_CHANNELS = (16, 32, 32)
_ASSUMED_CHANNELS = 32
"""Assumed channels at the picture's full size in a plugin's encoder without ``widest``."""
_BLOCKS = 2

Shape = tuple[int, int, int]
"""Channels, height and width."""

EncoderFactory = Callable[[Shape, int], nn.Module]
"""A function that makes an encoder, [B, C, H, W] in [0, 1] to [B, features], from shape and number of features."""

MINIMUM_SIDE: Mapping[str, int] = {
    "simple": 20,
    "nature_cnn": 36,
    "resnet": 15,
    "match3": 5,
    "fully_connected": 1,
}
"""The smallest width and height of an encoder's pictures."""


class Convolution(NamedTuple):
    """A convolution without padding."""

    channels: int
    kernel: int
    stride: int


CONVOLUTIONS: Mapping[str, Sequence[Convolution]] = {
    "simple": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    "nature_cnn": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "match3": (Convolution(35, 3, 1), Convolution(144, 3, 1)),
    "fully_connected": (),
}
"""Layers of the encoders that are plain stacks of convolutions."""

_CHANNELS_LAST = frozenset({"nature_cnn"})
"""Stacks that take a quarter less time with channels-last memory. The layers of other stacks are too small to make up
for the reordering."""


def picture_encoder(sensor: ObservationSpec, encoder: str, features: int) -> nn.Module:
    """Makes the encoder of a picture sensor.

    Raises ValueError if its pictures are too small for the encoder, PluginError if its plugin cannot be used.
    """
    channels, height, width = sensor.shape
    if min(height, width) < (least := MINIMUM_SIDE.get(encoder, 1)):
        fitting = [name for name, side in MINIMUM_SIDE.items() if side <= min(height, width)]
        raise ValueError(
            f"sensor '{sensor.name}' shows pictures {width} wide and {height} high, but vis_encode_type "
            f"'{encoder}' needs at least {least} both ways; these would fit: {', '.join(fitting)}"
        )
    if encoder not in PICTURE_ENCODERS:
        PICTURE_ENCODERS[encoder] = _encoder_of_plugin(encoder)
    return PICTURE_ENCODERS[encoder]((channels, height, width), features)


def _encoder_of_plugin(name: str) -> EncoderFactory:
    """Returns another distribution's encoder, whose modules are checked. Raises PluginError."""
    plugin = ENCODER_PLUGINS.offered().get(name)
    if plugin is None:
        raise PluginError(f"no picture encoder '{name}': the distribution that offered it is not installed")
    factory = guarded(plugin.load(), str(plugin))

    def make(shape: Shape, features: int) -> nn.Module:
        made = factory(shape, features)
        if not isinstance(made, nn.Module):
            raise PluginError(f"{plugin}: expected a torch.nn.Module, got {made!r}")
        if not hasattr(made, "widest"):  # it determines the number of rows per pass
            made.__dict__["widest"] = _ASSUMED_CHANNELS * shape[1] * shape[2]
        return made

    return make


class StackEncoder(nn.Module):
    """A stack of convolutions, then a dense layer, with LeakyReLU(0.01) after each."""

    def __init__(
        self, shape: Shape, features: int, convolutions: Sequence[Convolution], *, channels_last: bool = False
    ) -> None:
        """channels_last: the memory order of the pictures in convolutions."""
        super().__init__()
        self._channels_last = channels_last
        channels, height, width = shape
        sizes = [math.prod(shape)]
        layers = []
        for layer in convolutions:
            layers.append(nn.Conv2d(channels, layer.channels, layer.kernel, layer.stride))
            channels = layer.channels
            height, width = ((side - layer.kernel) // layer.stride + 1 for side in (height, width))
            sizes.append(channels * height * width)
        self.convolutions = nn.ModuleList(layers)
        self.dense = kaiming_linear(sizes[-1], features, gain=_RECTIFIER_GAIN)
        self.widest = max(sizes)

    def forward(self, pictures: Tensor) -> Tensor:
        """Maps [B, C, H, W] to [B, features]."""
        if self._channels_last:
            pictures = _channels_last(pictures)
        for layer in cast(Iterable[nn.Conv2d], self.convolutions):
            pictures = functional.leaky_relu(layer.forward(pictures))
        return functional.leaky_relu(self.dense.forward(pictures.reshape(-1, self.dense.in_features)))


class ResidualBlock(nn.Module):
    """x + Conv(Swish(Conv(Swish(x)))), all of one size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, channels, H, W] to the same shape."""
        change = self.first.forward(functional.silu(features))
        return features + self.second.forward(functional.silu(change))


class ResnetEncoder(nn.Module):
    """Three times a convolution, a 3×3 max pooling with stride 2, and two residual blocks."""

    def __init__(self, shape: Shape, features: int) -> None:
        super().__init__()
        channels, height, width = shape
        # Before pooling, the first convolution's output is as large as the picture.
        self.widest = max(channels, _RESNET_CHANNELS[0]) * height * width
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1)
            for before, after in itertools.pairwise((channels, *_RESNET_CHANNELS))
        )
        self.blocks = nn.ModuleList(
            ResidualBlock(channels) for channels in _RESNET_CHANNELS for _ in range(_BLOCKS)
        )
        for _ in _RESNET_CHANNELS:
            height, width = (height - 3) // 2 + 1, (width - 3) // 2 + 1
        self.dense = kaiming_linear(_RESNET_CHANNELS[-1] * height * width, features, gain=_RECTIFIER_GAIN)

    def forward(self, pictures: Tensor) -> Tensor:
        """Maps [B, C, H, W] to [B, features]."""
        pictures = _channels_last(pictures)
        blocks = iter(cast(Iterable[ResidualBlock], self.blocks))
        for layer in cast(Iterable[nn.Conv2d], self.convolutions):
            pictures = functional.max_pool2d(layer.forward(pictures), kernel_size=3, stride=2)
            for block in itertools.islice(blocks, _BLOCKS):
                pictures = block.forward(pictures)
        flat = functional.silu(pictures).reshape(-1, self.dense.in_features)
        return functional.relu(self.dense.forward(flat))


def _channels_last(pictures: Tensor) -> Tensor:
    """Returns pictures in channels-last memory order. Traced models keep their order."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
        return pictures
    return pictures.contiguous(memory_format=torch.channels_last)


def _stack(convolutions: Sequence[Convolution], *, channels_last: bool) -> EncoderFactory:
    return partial(StackEncoder, convolutions=convolutions, channels_last=channels_last)


PICTURE_ENCODERS: dict[str, EncoderFactory] = {
    **{
        name: _stack(convolutions, channels_last=name in _CHANNELS_LAST)
        for name, convolutions in CONVOLUTIONS.items()
    },
    "resnet": ResnetEncoder,
}
"""Encoders by configuration name. A plugin's encoder is added when the first network with it is made."""
