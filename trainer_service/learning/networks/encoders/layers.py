"""Layers with ML-Agents' initialization, and conversion of batches: to floats, in chunks that fit the cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.network import Activation, NetworkSettings
from trainer_service.learning.networks.products import Linear, linear

LAYER_NORM_EPSILON = 1e-5

_MOST_ROWS = 4096
_MOST_FLOATS = 1 << 20


def normal_linear(inputs: int, outputs: int, *, deviation: float) -> Linear:
    """A linear layer with normal weights and zero biases."""
    layer = Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.normal_(0.0, deviation)
        layer.bias.zero_()
    return layer


def kaiming_linear(inputs: int, outputs: int, *, gain: float = 1.0) -> Linear:
    """A linear layer with normal weights of standard deviation gain/√inputs and zero biases."""
    return normal_linear(inputs, outputs, deviation=gain / inputs**0.5)


def hidden_linear(inputs: int, outputs: int, activation: Activation) -> Linear:
    """A layer of a body with its initialization: ML-Agents' for Swish, otherwise PyTorch's."""
    return kaiming_linear(inputs, outputs) if activation == "swish" else Linear(inputs, outputs)


def xavier_linear(inputs: int, outputs: int) -> Linear:
    """A linear layer with Xavier-uniform weights and zero biases."""
    layer = Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def orthogonal_linear(inputs: int, outputs: int, *, gain: float) -> Linear:
    """A linear layer with orthogonal weights, Saxe et al. 2014 (arXiv:1312.6120), times the gain, and zero biases."""
    layer = Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def standardized(features: Tensor, size: int) -> Tensor:
    """Layer normalization without parameters, Ba et al. 2016 (arXiv:1607.06450). Shape [..., size]."""
    return nn.functional.layer_norm(features, (size,), eps=LAYER_NORM_EPSILON)


def with_constants(features: Tensor) -> Tensor:
    """Appends the constants 1 and −1 to features. [..., size] to [..., size + 2]"""
    # Computed from the features: padding, or reading the shape, needs operators that old engines lack.
    zero = features[..., :1] * 0.0
    return torch.cat([features, zero + 1.0, zero - 1.0], dim=-1)


class LinearBody(nn.Module):
    """``num_layers`` times Linear and an activation, at least one."""

    def __init__(
        self, inputs: int, hidden_units: int, num_layers: int, activation: Activation = "swish"
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        sizes = [inputs] + [hidden_units] * max(num_layers, 1)
        self.layers = nn.ModuleList(
            hidden_linear(before, after, activation) for before, after in itertools.pairwise(sizes)
        )
        self.output_size = hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, inputs] to [B, hidden_units]."""
        # Called as functions, since for small batches a module's call costs as much as its product.
        for layer in cast(Iterable[Linear], self.layers):
            features = linear(features, layer.weight, layer.bias, self.activation)
        return features


class NormedBody(nn.Module):
    """``num_layers`` times Linear, ReLU and layer normalization, at least one, on normalized inputs.

    The body of Yu et al. 2022 (arXiv:2103.01955), with their orthogonal weights. ML-Agents' body is nearly linear in
    small inputs, such as distances in a unit square. This body is not, for inputs of any size.

    Normalization removes offset and scale of the inputs: x, 2x and x + 1 become equal. With ``keep_scale``, the
    constants 1 and −1 are normalized together with the inputs, and preserve both.
    """

    def __init__(self, inputs: int, hidden_units: int, num_layers: int, *, keep_scale: bool = False) -> None:
        super().__init__()
        self._keep_scale = keep_scale
        inputs += 2 * keep_scale
        sizes = [inputs] + [hidden_units] * max(num_layers, 1)
        self.layers = nn.ModuleList(
            orthogonal_linear(before, after, gain=2.0**0.5) for before, after in itertools.pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in sizes)
        self.output_size = hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, inputs] to [B, hidden_units]."""
        norms = iter(cast(Iterable[nn.LayerNorm], self.norms))
        if self._keep_scale:
            features = with_constants(features)
        features = next(norms).forward(features)
        for layer, norm in zip(cast(Iterable[Linear], self.layers), norms, strict=True):
            features = norm.forward(linear(features, layer.weight, layer.bias, "relu"))
        return features


def make_body(inputs: int, settings: NetworkSettings) -> LinearBody | NormedBody:
    """Makes the body of the settings, from ``inputs`` to ``hidden_units``."""
    shape = (inputs, settings.hidden_units, settings.num_layers)
    if settings.layer_norm:
        return NormedBody(*shape, keep_scale=settings.keep_scale)
    return LinearBody(*shape, settings.activation)


def observations_as_floats(observations: Sequence[Tensor]) -> list[Tensor]:
    """Converts observations to floats: bytes to byte/255, floats unchanged."""
    return [sensor / 255 if sensor.dtype == torch.uint8 else sensor for sensor in observations]


def rows_at_once(network: nn.Module) -> int:
    """Returns the number of rows for which the network's widest layer fits into a few megabytes."""
    widest: int = max(getattr(module, "widest", 1) for module in network.modules())
    return min(_MOST_ROWS, max(1, _MOST_FLOATS // widest))


def in_chunks(rows: int, size: int) -> list[slice]:
    """Slices that cover ``rows`` in chunks of at most ``size``, for large batches that should stay in the cache."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
