"""Mixers of agents' values to the group's value: a sum, or a network that is monotonic in each value."""

from __future__ import annotations

from torch import Tensor, nn

from trainer_service.learning.networks.encoders.layers import with_constants
from trainer_service.learning.networks.products import Linear


class SumMixer(nn.Module):
    """The mixer Q_tot = Σ_i Q_i, Sunehag et al. 2018 (arXiv:1706.05296)."""

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """Mixes values: [B, n], 0 for absent agents. state: unused. Returns [B]."""
        return values.sum(dim=1)


class MonotonicMixer(nn.Module):
    """The mixer Q_tot = |W₂(s)| · elu(|W₁(s)| q + b₁(s)) + v(s), Rashid et al. 2018 (arXiv:1803.11485).

    ∂Q_tot/∂q_i is never negative, so each agent's best action is best for the group. An absent agent has the value 0,
    which is not special otherwise.
    """

    def __init__(
        self,
        num_agents: int,
        state_size: int,
        mixer_units: int,
        hypernet_units: int,
        *,
        layer_norm: bool = False,
        keep_scale: bool = False,
    ) -> None:
        """num_agents: n. mixer_units: width of the hidden layer. hypernet_units: width of W₁'s and W₂'s hypernetworks.

        layer_norm: normalizes the state and the hidden features of hypernetworks. A total is a product of three
        functions of the state. If these are nearly linear, and the next state is larger than the present one, each
        target raises the next one, without end. Bounded functions cannot do that. keep_scale: normalizes two constants
        with the state, which preserve its size (see ``NormedBody``).
        """
        super().__init__()
        self._keep_scale = layer_norm and keep_scale
        state_size += 2 * self._keep_scale
        self._shape = (num_agents, mixer_units)
        self.state = nn.LayerNorm(state_size) if layer_norm else nn.Identity()
        self.first_weights = _Hypernet(state_size, hypernet_units, num_agents * mixer_units, layer_norm)
        self.first_bias = Linear(state_size, mixer_units)
        self.second_weights = _Hypernet(state_size, hypernet_units, mixer_units, layer_norm)
        self.second_bias = _Hypernet(state_size, mixer_units, 1, layer_norm)

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """Mixes values: [B, n]. state: [B, state_size]. Returns [B]."""
        if state is None:
            raise ValueError("the mixer's weights depend on the state")
        state = self.state.forward(with_constants(state) if self._keep_scale else state)
        first = self.first_weights.forward(state).abs().view(-1, *self._shape)
        # A sum of products, since torch takes twice the time for one small matrix of each row.
        hidden = (values.unsqueeze(2) * first).sum(dim=1) + self.first_bias.forward(state)
        second = self.second_weights.forward(state).abs()
        mixed = (nn.functional.elu(hidden) * second).sum(dim=1)
        return mixed + self.second_bias.forward(state).squeeze(1)


class _Hypernet(nn.Sequential):
    """Two linear layers, the first with ReLU and optional layer normalization."""

    def __init__(self, inputs: int, hidden: int, outputs: int, layer_norm: bool) -> None:
        norm = [nn.LayerNorm(hidden)] if layer_norm else []
        super().__init__(Linear(inputs, hidden), nn.ReLU(inplace=True), *norm, Linear(hidden, outputs))

    def forward(self, features: Tensor) -> Tensor:
        """Maps [B, inputs] to [B, outputs]."""
        # As functions, since a module's call costs as much as a small layer.
        for layer in self:
            features = layer.forward(features)
        return features
