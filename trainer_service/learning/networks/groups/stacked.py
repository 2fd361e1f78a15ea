"""Networks of several agents computed at once, with one product per layer instead of one per agent and layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.network import Activation, NetworkSettings
from trainer_service.learning.networks.encoders.layers import (
    LAYER_NORM_EPSILON,
    standardized,
    with_constants,
)
from trainer_service.learning.networks.products import linear, stacked_linear


class StackedLinear(nn.Module):
    """A linear layer for each of ``count`` agents. Weights are normal with deviation gain/√inputs, biases zero."""

    def __init__(self, count: int, inputs: int, outputs: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.randn(count, inputs, outputs) * (gain / inputs**0.5))
        self.bias = nn.Parameter(torch.zeros(count, 1, outputs))

    def begin_as_pytorch(self) -> None:
        """Initializes weights and biases like PyTorch's linear layers: uniform within 1/√inputs of 0."""
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, features: Tensor, activation: Activation | None = None) -> Tensor:
        """Applies each agent's own layer. [B, count, inputs] to [B, count, outputs]"""
        return stacked_linear(features.transpose(0, 1), self.weight, self.bias, activation).transpose(0, 1)

    def of(self, agent: int, features: Tensor, activation: Activation | None = None) -> Tensor:
        """Applies one agent's layer. [B, inputs] to [B, outputs]"""
        return linear(features, self.weight[agent].t(), self.bias[agent, 0], activation)


def layers_of(copies: int, sizes: Sequence[int]) -> nn.ModuleList:
    """Makes one layer from each width to the next, for ``copies`` networks at once."""
    return nn.ModuleList(StackedLinear(copies, before, after) for before, after in itertools.pairwise(sizes))


class StackedBody(nn.Module):
    """A body for each agent: ``num_layers`` times linear and an activation, at least one."""

    def __init__(
        self, count: int, inputs: int, hidden_units: int, num_layers: int, activation: Activation = "swish"
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.layers = layers_of(count, [inputs] + [hidden_units] * max(num_layers, 1))
        if activation != "swish":
            for layer in cast(Iterable[StackedLinear], self.layers):
                layer.begin_as_pytorch()
        self.output_size = hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, count, inputs] to [B, count, hidden_units]."""
        for layer in cast(Iterable[StackedLinear], self.layers):
            features = layer.forward(features, self.activation)
        return features

    def of(self, agent: int, features: Tensor) -> Tensor:
        """Applies one agent's body. [B, inputs] to [B, hidden_units]"""
        for layer in cast(Iterable[StackedLinear], self.layers):
            features = layer.of(agent, features, self.activation)
        return features


class StackedNormedBody(nn.Module):
    """NormedBody for each agent: linear, ReLU and layer normalization, on normalized inputs."""

    def __init__(
        self, count: int, inputs: int, hidden_units: int, num_layers: int, *, keep_scale: bool = False
    ) -> None:
        super().__init__()
        self._keep_scale = keep_scale
        inputs += 2 * keep_scale
        sizes = [inputs] + [hidden_units] * max(num_layers, 1)
        self.layers = layers_of(count, sizes)
        for layer in cast(Iterable[StackedLinear], self.layers):
            for weight in layer.weight.unbind():
                nn.init.orthogonal_(weight, 2.0**0.5)
        self.scales = nn.ParameterList(torch.ones(count, size) for size in sizes)
        self.shifts = nn.ParameterList(torch.zeros(count, size) for size in sizes)
        self.input_size = inputs
        self.output_size = hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, count, inputs] to [B, count, hidden_units]."""
        if self._keep_scale:
            features = with_constants(features)
        features = self._normed(0, features, self.input_size)
        for k, layer in enumerate(cast(Iterable[StackedLinear], self.layers), 1):
            features = self._normed(k, layer.forward(features, "relu"), self.output_size)
        return features

    def _normed(self, k: int, features: Tensor, size: int) -> Tensor:
        """Layer normalization with each agent's own scales and shifts. [B, count, size]"""
        scales, shifts = self.scales[k], self.shifts[k]
        if len(scales) == 1:
            # The same in one kernel, without scales that differ by row: a quarter of the body's time.
            return nn.functional.layer_norm(features, (size,), scales[0], shifts[0], eps=LAYER_NORM_EPSILON)
        return torch.addcmul(shifts, standardized(features, size), scales)

    def of(self, agent: int, features: Tensor) -> Tensor:
        """Applies one agent's body. [B, inputs] to [B, hidden_units]"""
        if self._keep_scale:
            features = with_constants(features)
        # A constant size, since a size that is read from the features cannot be traced for a model.
        features = standardized(features, self.input_size) * self.scales[0][agent] + self.shifts[0][agent]
        for k, layer in enumerate(cast(Iterable[StackedLinear], self.layers), 1):
            rectified = standardized(layer.of(agent, features, "relu"), self.output_size)
            features = rectified * self.scales[k][agent] + self.shifts[k][agent]
        return features


def make_stacked_body(count: int, inputs: int, settings: NetworkSettings) -> StackedBody | StackedNormedBody:
    """Makes ``count`` bodies of the settings."""
    shape = (count, inputs, settings.hidden_units, settings.num_layers)
    if settings.layer_norm:
        return StackedNormedBody(*shape, keep_scale=settings.keep_scale)
    return StackedBody(*shape, settings.activation)
