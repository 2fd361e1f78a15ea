"""The critic of MA-POCA, Cohen et al. 2021 (arXiv:2111.05992): any number of agents, by attention.

F moments, n places.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.actor_critic import as_floats
from trainer_service.networks.encoder import ObservationEncoder
from trainer_service.networks.layers import LinearBody, normal_linear, standardized
from trainer_service.networks.memory import make_memory
from trainer_service.networks.value_scale import ScaledValues
from unity_bridge.specs import BehaviorSpec

_HEADS = 4
_NEVER = 1e6


class POCACritic(nn.Module):
    """The group's value from what its agents see, and for each agent a baseline that also knows what the others did.

    One network for both: agents whose action is not shown are embedded by one layer, those whose action is shown by
    another; they attend to each other, and the mean of those who are there goes on, with their number beside it.
    """

    most: Tensor
    """The most agents that were ever there at once."""

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, sees: Sequence[int], signals: int
    ) -> None:
        """sees: the sensors of an agent that count."""
        super().__init__()
        self._sees = tuple(sees)
        units, actions = settings.hidden_units, spec.action_spec
        self.encoder = ObservationEncoder([spec.observation_specs[i] for i in sees], settings)
        deviation = (0.125 / units) ** 0.5
        encoded = self.encoder.output_size
        self.seen = normal_linear(encoded, units, deviation=deviation)
        shown = encoded + actions.continuous_size + actions.mask_size
        self.seen_acting = normal_linear(shown, units, deviation=deviation)
        self.query, self.key, self.mix, self.output = (
            normal_linear(units, units, deviation=deviation) for _ in range(4)
        )
        self.body = LinearBody(units, units, settings.num_layers)
        self.memory = None if settings.memory is None else make_memory(units, settings.memory)
        features = units if self.memory is None else self.memory.output_size
        # One more input: how many are there.
        self.value = ScaledValues(features + 1, signals, "none")
        self.register_buffer("most", torch.ones(()))

    def forward(
        self, observations: Sequence[Tensor], actions: Tensor, members: Tensor, filled: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Values of the group, [F, signals], and every agent's baseline, [F, n, signals].

        observations: [R, …] per sensor; actions: what the same rows did, continuous and one-hot side by side,
        [R, A]; members: int64 [F, n], who is at each place, −1 where nobody is; filled: which moments there are of
        sequences that begin without memory, bool [Q, L].
        """
        encoded = self.encoder.forward(as_floats([observations[i] for i in self._sees]))
        seen, acting = self._embedded(encoded, actions, members)
        there = (members >= 0).to(seen.dtype)
        self._count(there)
        values = self._valued(seen, there, filled)
        baselines = [
            # Agent k shows what it sees, the others also what they do.
            self._valued(torch.where(self._is(k, members), seen, acting), there, filled)
            for k in range(members.shape[1])
        ]
        return values, torch.stack(baselines, dim=1)

    def _embedded(self, encoded: Tensor, actions: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Everyone without and with action, [F, n, units] each; of who is absent, anything."""
        without = functional.silu(self.seen.forward(encoded))
        with_action = functional.silu(self.seen_acting.forward(torch.cat([encoded, actions], dim=1)))
        return without[members.clamp(min=0)], with_action[members.clamp(min=0)]

    @staticmethod
    def _is(k: int, members: Tensor) -> Tensor:
        places = torch.arange(members.shape[1], device=members.device)
        return (places == k).view(1, -1, 1)

    def _valued(self, entities: Tensor, there: Tensor, filled: Tensor | None) -> Tensor:
        features = self.body.forward(self._pooled(entities, there))
        if self.memory is not None and filled is not None:
            start = features.new_zeros((len(filled), self.memory.size))
            features = self.memory.unroll(features, start, filled)
        count = 2.0 * there.sum(dim=1, keepdim=True) / self.most - 1.0
        return self.value.forward(torch.cat([features, count], dim=1)).squeeze(1)

    def _pooled(self, entities: Tensor, there: Tensor) -> Tensor:
        """Attention among those who are there, with a residual connection, and their mean. [F, n, U] to [F, U]."""
        units = entities.shape[2]
        entities = standardized(entities, units)
        query, key, mix = (self._heads(layer.forward(entities)) for layer in (self.query, self.key, self.mix))
        scores = query @ key.transpose(-1, -2) / units**0.5
        absent = (there - 1.0).view(len(there), 1, 1, -1) * _NEVER
        mixed = torch.softmax(scores + absent, dim=-1) @ mix
        attended = entities + self.output.forward(mixed.transpose(1, 2).reshape(entities.shape))
        attended = standardized(attended, units)
        return (attended * there.unsqueeze(2)).sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1.0)

    def _heads(self, features: Tensor) -> Tensor:
        """[F, n, units] to [F, heads, n, units/heads]."""
        moments, places, units = features.shape
        return features.view(moments, places, _HEADS, units // _HEADS).transpose(1, 2)

    @torch.no_grad()
    def _count(self, there: Tensor) -> None:
        if self.training and len(there):
            torch.maximum(self.most, there.sum(dim=1).max(), out=self.most)
