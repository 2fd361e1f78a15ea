"""A body whose last layer is generated from the goal: a hypernetwork, Ha et al. 2016 (arXiv:1609.09106)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.learning.networks.encoders.layers import LinearBody, standardized
from trainer_service.learning.networks.products import Linear

_GENERATOR_LAYERS = 2


class GeneratedLinear(nn.Module):
    """A linear layer whose weights, but not biases, are a function of the goal."""

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
        """Applies the layer to rows that share a few goals. Weights are generated once for each goal.

        Features are in the columns of their own goal, with zeros in all other columns, so that one product suffices.
        """
        own = functional.one_hot(which, len(distinct)).to(features.dtype)
        spread = (own.unsqueeze(2) * features.unsqueeze(1)).reshape(len(features), -1)
        weights = self._weights(distinct).reshape(-1, self.shape[1])
        return torch.addmm(self.bias, spread, weights)


class ConditionalBody(nn.Module):
    """``num_layers`` layers with Swish, at least one. The last is generated from the goal.

    The goal consists of columns of the features, so it is an ordinary input too.
    """

    def __init__(
        self, inputs: int, hidden_units: int, num_layers: int, goal: Sequence[slice], *, seen: bool = True
    ) -> None:
        """goal: columns of the goals in the features.

        seen: whether these are the observed goals, so that no gradient through them is needed.
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
    """Whether equal goals may be computed once.

    Not in an export, which must be valid for any goals. Not if goals have gradients. Only on the CPU, where reading
    their numbers does not wait for a device.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
        return False
    return not goal.requires_grad and goal.device.type == "cpu"
