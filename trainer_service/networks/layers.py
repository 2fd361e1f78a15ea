"""Layers as ML-Agents initializes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn


def normal_linear(inputs: int, outputs: int, *, deviation: float) -> nn.Linear:
    """Weights normal, biases zero."""
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.normal_(0.0, deviation)
        layer.bias.zero_()
    return layer


def kaiming_linear(inputs: int, outputs: int, *, gain: float = 1.0) -> nn.Linear:
    """Weights normal with standard deviation gain/√inputs, biases zero."""
    return normal_linear(inputs, outputs, deviation=gain / inputs**0.5)


def xavier_linear(inputs: int, outputs: int) -> nn.Linear:
    """Weights Xavier-uniform, biases zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def standardized(features: Tensor, size: int) -> Tensor:
    """Layer normalization without parameters, Ba et al. 2016 (arXiv:1607.06450). Shape [..., size]."""
    return nn.functional.layer_norm(features, (size,), eps=1e-5)


class LinearBody(nn.Module):
    """``num_layers`` times Linear and Swish, at least one."""

    def __init__(self, inputs: int, hidden_units: int, num_layers: int) -> None:
        super().__init__()
        sizes = [inputs] + [hidden_units] * max(num_layers, 1)
        self.layers = nn.ModuleList(
            kaiming_linear(before, after) for before, after in itertools.pairwise(sizes)
        )
        self.output_size = hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """[B, inputs] to [B, hidden_units]."""
        # Called as functions: for small batches a module's own call costs as much as its product.
        for layer in cast(Iterable[nn.Linear], self.layers):
            features = nn.functional.silu(nn.functional.linear(features, layer.weight, layer.bias))
        return features
