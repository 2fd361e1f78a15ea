"""A body with a last layer that the goal writes: a hypernetwork, Ha et al. 2016 (arXiv:1609.09106)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.networks.encoders.layers import LinearBody, standardized
from trainer_service.networks.products import Linear

_GENERATOR_LAYERS = 2


class GeneratedLinear(nn.Module):
    """A linear layer with weights, but not biases, that are a function of the goal."""

    def __init__(self, inputs: int, outputs: int, goal: int, hidden_units: int) -> None:
        super().__init__()
        self.shape = (inputs, outputs)
        self.hidden = LinearBody(goal, hidden_units, _GENERATOR_LAYERS)
        self.weights = Linear(hidden_units, inputs * outputs)
        bound = (hidden_units * inputs) ** -0.5
        nn.init.uniform_(self.weights.weight, -bound, bound)
        nn.init.zeros_(self.weights.bias)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, features: Tensor, goal: Tensor) -> Tensor:
        """Maps [B, inputs] and [B, goal] to [B, outputs]."""
        inputs, outputs = self.shape
        if _comparable(goal):
            rows, hidden = len(goal), self.hidden.output_size
            distinct, which = torch.unique(goal, dim=0, return_inverse=True)
            if len(distinct) * (rows + hidden) < rows * hidden:
                return self._by_goal(features, distinct, which)
        weights = self._weights(goal).reshape(-1, inputs, outputs)
        return torch.matmul(features.reshape(-1, 1, inputs), weights).reshape(-1, outputs) + self.bias

    def _weights(self, goals: Tensor) -> Tensor:
        """Maps [goals, goal] to [goals, inputs · outputs]."""
        return self.weights.forward(standardized(self.hidden.forward(goals), self.hidden.output_size))

    def _by_goal(self, features: Tensor, distinct: Tensor, which: Tensor) -> Tensor:
        """Applies the layer where few goals are shared by many: weights are generated once for each of them.

        The features stand in the columns of their own goal, with zeros in all others', so that one product does.
        """
        own = functional.one_hot(which, len(distinct)).to(features.dtype)
        spread = (own.unsqueeze(2) * features.unsqueeze(1)).reshape(len(features), -1)
        weights = self._weights(distinct).reshape(-1, self.shape[1])
        return torch.addmm(self.bias, spread, weights)


class ConditionalBody(nn.Module):
    """``num_layers`` layers with Swish, at least one; the last of them generated from the goal.

    The goal is some columns of the features, so it counts as an ordinary input as well.
    """

    def __init__(
        self, inputs: int, hidden_units: int, num_layers: int, goal: Sequence[slice], *, seen: bool = True
    ) -> None:
        """goal: where among the features the goals stand.

        seen: they stand there as they were observed, so that nothing before them learns from a gradient.
        """
        super().__init__()
        self.goal = goal
        self.seen = seen
        self.ordinary = LinearBody(inputs, hidden_units, num_layers - 1) if num_layers > 1 else None
        goal_size = sum(columns.stop - columns.start for columns in goal)
        last = hidden_units if self.ordinary else inputs
        self.generated = GeneratedLinear(last, hidden_units, goal_size, hidden_units)
        self.output_size = hidden_units
        self.widest = last * hidden_units

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, inputs] to [B, hidden_units]."""
        source = features.detach() if self.seen else features
        goal = torch.cat([source[:, columns] for columns in self.goal], dim=-1)
        if self.ordinary is not None:
            features = self.ordinary.forward(features)
        return functional.silu(self.generated.forward(features, goal))


def _comparable(goal: Tensor) -> bool:
    """Whether equal goals may be looked for: not in an export, which must hold for any; not where goals have
    gradients of their own; and only where their numbers are at hand without waiting for a device."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
        return False
    return not goal.requires_grad and goal.device.type == "cpu"
