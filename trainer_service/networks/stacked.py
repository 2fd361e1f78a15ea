"""Networks of several agents side by side: as many products as one network has layers, not as many as there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """A linear layer for each of ``count`` agents. Weights normal with deviation gain/√inputs, biases zero."""

    def __init__(self, count: int, inputs: int, outputs: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.randn(count, inputs, outputs) * (gain / inputs**0.5))
        self.bias = nn.Parameter(torch.zeros(count, 1, outputs))

    def forward(self, features: Tensor) -> Tensor:
        """Each agent's features through its own layer. [B, count, inputs] to [B, count, outputs]"""
        return torch.baddbmm(self.bias, features.transpose(0, 1), self.weight).transpose(0, 1)

    def of(self, agent: int, features: Tensor) -> Tensor:
        """One agent's layer alone. [B, inputs] to [B, outputs]"""
        return nn.functional.linear(features, self.weight[agent].t(), self.bias[agent, 0])


class StackedBody(nn.Module):
    """A body for each agent: ``num_layers`` times linear and Swish, at least one."""

    def __init__(self, count: int, inputs: int, hidden_units: int, num_layers: int) -> None:
        super().__init__()
        sizes = [inputs] + [hidden_units] * max(num_layers, 1)
        self.layers = nn.ModuleList(
            StackedLinear(count, before, after) for before, after in itertools.pairwise(sizes)
        )
        self.output_size = hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """[B, count, inputs] to [B, count, hidden_units]."""
        for layer in cast(Iterable[StackedLinear], self.layers):
            features = nn.functional.silu(layer.forward(features))
        return features

    def of(self, agent: int, features: Tensor) -> Tensor:
        """One agent's body alone. [B, inputs] to [B, hidden_units]"""
        for layer in cast(Iterable[StackedLinear], self.layers):
            features = nn.functional.silu(layer.of(agent, features))
        return features
