"""A body whose last layer the goal writes: a hypernetwork, Ha et al. 2016 (arXiv:1609.09106)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.networks.layers import LinearBody, standardized

_GENERATOR_LAYERS = 2


class GeneratedLinear(nn.Module):
    """A linear layer whose weights, but not its biases, are a function of the goal."""

    def __init__(self, inputs: int, outputs: int, goal: int, hidden_units: int) -> None:
        super().__init__()
        self.shape = (inputs, outputs)
        self.hidden = LinearBody(goal, hidden_units, _GENERATOR_LAYERS)
        self.weights = nn.Linear(hidden_units, inputs * outputs)
        bound = (hidden_units * inputs) ** -0.5
        nn.init.uniform_(self.weights.weight, -bound, bound)
        nn.init.zeros_(self.weights.bias)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, features: Tensor, goal: Tensor) -> Tensor:
        """[B, inputs] and [B, goal] to [B, outputs]."""
        inputs, outputs = self.shape
        weights = self.weights.forward(standardized(self.hidden.forward(goal), self.hidden.output_size))
        product = torch.matmul(features.reshape(-1, 1, inputs), weights.reshape(-1, inputs, outputs))
        return product.reshape(-1, outputs) + self.bias


class ConditionalBody(nn.Module):
    """``num_layers`` layers with Swish, at least one; the last of them generated from the goal.

    The goal is some columns of the features, so it counts as an ordinary input as well.
    """

    def __init__(self, inputs: int, hidden_units: int, num_layers: int, goal: Sequence[slice]) -> None:
        """goal: where among the features the goals stand."""
        super().__init__()
        self.goal = goal
        self.ordinary = LinearBody(inputs, hidden_units, num_layers - 1) if num_layers > 1 else None
        goal_size = sum(columns.stop - columns.start for columns in goal)
        last = hidden_units if self.ordinary else inputs
        self.generated = GeneratedLinear(last, hidden_units, goal_size, hidden_units)
        self.output_size = hidden_units
        self.widest = last * hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """[B, inputs] to [B, hidden_units]."""
        goal = torch.cat([features[:, columns] for columns in self.goal], dim=-1)
        if self.ordinary is not None:
            features = self.ordinary.forward(features)
        return functional.silu(self.generated.forward(features, goal))
