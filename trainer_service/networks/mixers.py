"""From what agents' choices are worth to what the group's is: a sum, or a network that only ever rewards agreement."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SumMixer(nn.Module):
    """Q_tot = Σ_i Q_i, Sunehag et al. 2018 (arXiv:1706.05296)."""

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """values: [B, n], 0 for who is not there; state: not looked at. Returns [B]."""
        return values.sum(dim=1)


class MonotonicMixer(nn.Module):
    """Q_tot = |W₂(s)| · elu(|W₁(s)| q + b₁(s)) + v(s), Rashid et al. 2018 (arXiv:1803.11485).

    ∂Q_tot/∂q_i is never negative, so what is best for each agent is best for all of them. Who is not there has a value
    of 0, as any other agent may have.
    """

    def __init__(self, places: int, state_size: int, mixer_units: int, hypernet_units: int) -> None:
        """places: n; mixer_units: width of the layer between; hypernet_units: of those that make W₁ and W₂."""
        super().__init__()
        self._shape = (places, mixer_units)
        self.first_weights = _hypernet(state_size, hypernet_units, places * mixer_units)
        self.first_bias = nn.Linear(state_size, mixer_units)
        self.second_weights = _hypernet(state_size, hypernet_units, mixer_units)
        self.second_bias = _hypernet(state_size, mixer_units, 1)

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """values: [B, n]; state: [B, state_size]. Returns [B]."""
        if state is None:
            raise ValueError("the mixer's weights depend on the state")
        first = self.first_weights(state).abs().view(-1, *self._shape)
        hidden = torch.baddbmm(self.first_bias(state).unsqueeze(1), values.unsqueeze(1), first).squeeze(1)
        second = self.second_weights(state).abs()
        total: Tensor = (nn.functional.elu(hidden) * second).sum(dim=1) + self.second_bias(state).squeeze(1)
        return total


def _hypernet(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
