"""Picture encoders: from [B, C, H, W] with values in [0, 1] to as many features as the body has hidden units.

The five of ML-Agents: ``simple`` and ``match3``, ``nature_cnn`` after Mnih et al. 2015 (doi:10.1038/nature14236),
``resnet`` after Espeholt et al. 2018 (IMPALA, arXiv:1802.01561), and ``fully_connected``. Convolutions begin as
torch makes them, the dense layer Kaiming-normal with the gain of a rectifier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.network import EncoderType
from trainer_service.networks.encoders.layers import kaiming_linear
from unity_bridge.specs import ObservationSpec

_RECTIFIER_GAIN = 1.41
_RESNET_CHANNELS = (16, 32, 32)
_BLOCKS = 2

MINIMUM_SIDE: Mapping[EncoderType, int] = {
    "simple": 20,
    "nature_cnn": 36,
    "resnet": 15,
    "match3": 5,
    "fully_connected": 1,
}
"""The smallest width and height that an encoder takes."""


class Convolution(NamedTuple):
    """A layer without padding."""

    channels: int
    kernel: int
    stride: int


CONVOLUTIONS: Mapping[EncoderType, Sequence[Convolution]] = {
    "simple": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    "nature_cnn": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "match3": (Convolution(35, 3, 1), Convolution(144, 3, 1)),
    "fully_connected": (),
}
"""Layers of the encoders that are nothing but a stack of convolutions."""


def picture_encoder(
    sensor: ObservationSpec, encoder: EncoderType, features: int
) -> StackEncoder | ResnetEncoder:
    """The encoder of a picture sensor. Raises ValueError where its pictures are too small for it."""
    channels, height, width = sensor.shape
    if min(height, width) < MINIMUM_SIDE[encoder]:
        fitting = [name for name, side in MINIMUM_SIDE.items() if side <= min(height, width)]
        raise ValueError(
            f"sensor '{sensor.name}' shows pictures {width} wide and {height} high, but vis_encode_type "
            f"'{encoder}' needs at least {MINIMUM_SIDE[encoder]} both ways; these would fit: {', '.join(fitting)}"
        )
    if encoder == "resnet":
        return ResnetEncoder((channels, height, width), features)
    return StackEncoder((channels, height, width), CONVOLUTIONS[encoder], features)


class StackEncoder(nn.Module):
    """Convolutions one after the other, then a dense layer; LeakyReLU(0.01) after each."""

    def __init__(
        self, shape: tuple[int, int, int], convolutions: Sequence[Convolution], features: int
    ) -> None:
        super().__init__()
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
        """Maps [B, channels, H, W] to the same."""
        change = self.first.forward(functional.silu(features))
        return features + self.second.forward(functional.silu(change))


class ResnetEncoder(nn.Module):
    """Three times a convolution, a maximum over 3×3 at every second place, and two residual blocks."""

    def __init__(self, shape: tuple[int, int, int], features: int) -> None:
        super().__init__()
        channels, height, width = shape
        # Before its maximum the first convolution's output is as large as the picture.
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
        blocks = iter(cast(Iterable[ResidualBlock], self.blocks))
        for layer in cast(Iterable[nn.Conv2d], self.convolutions):
            pictures = functional.max_pool2d(layer.forward(pictures), kernel_size=3, stride=2)
            for block in itertools.islice(blocks, _BLOCKS):
                pictures = block.forward(pictures)
        flat = functional.silu(pictures).reshape(-1, self.dense.in_features)
        return functional.relu(self.dense.forward(flat))
