"""The critic of MA-POCA, Cohen et al. 2021 (arXiv:2111.05992): any number of agents, by attention.

F joint steps, n agents, R present agents.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.critics.groups_by_size import GroupsBySize, sorted_by_size
from trainer_service.learning.networks.critics.leave_one_out import attend, project_heads
from trainer_service.learning.networks.critics.value_scale import ScaledValues
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder
from trainer_service.learning.networks.encoders.layers import (
    make_body,
    normal_linear,
    observations_as_floats,
    standardized,
    with_constants,
)
from trainer_service.learning.networks.encoders.memory import make_memory
from trainer_service.learning.networks.products import linear
from unity_bridge.specs import BehaviorSpec

_HEADS = 4


class POCACritic(nn.Module):
    """The group's value from its agents' observations, and each agent's baseline with the other agents' actions.

    One network computes both. One layer embeds agents without their action, another embeds agents with their action.
    Agents attend to each other, and the mean of the present agents and their number are the inputs of the body.
    """

    most: Tensor
    """The largest number of present agents so far."""

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, agent_sensors: Sequence[int], signals: int
    ) -> None:
        """agent_sensors: the critic's sensors of each agent."""
        super().__init__()
        self._agent_sensors = tuple(agent_sensors)
        units, actions = settings.hidden_units, spec.action_spec
        self.encoder = ObservationEncoder([spec.observation_specs[i] for i in agent_sensors], settings)
        deviation = (0.125 / units) ** 0.5
        # Embeddings are normalized, so the size of observations would be lost, as in a NormedBody.
        self._keep_scale = settings.layer_norm and settings.keep_scale
        encoded = self.encoder.output_size + 2 * self._keep_scale
        self.seen = normal_linear(encoded, units, deviation=deviation)
        shown = encoded + actions.continuous_size + actions.mask_size
        self.seen_acting = normal_linear(shown, units, deviation=deviation)
        self.query, self.key, self.mix, self.output = (
            normal_linear(units, units, deviation=deviation) for _ in range(4)
        )
        self.body = make_body(units, settings)
        self.memory = None if settings.memory is None else make_memory(units, settings.memory)
        features = units if self.memory is None else self.memory.output_size
        # One more input: the number of present agents.
        self.value = ScaledValues(features + 1, signals, "none")
        self.register_buffer("most", torch.ones(()))

    def forward(
        self, observations: Sequence[Tensor], actions: Tensor, members: Tensor, filled: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns values of the group, [F, signals], and every agent's baseline, [F, n, signals].

        The baseline of an absent agent is arbitrary; without memory it is 0.

        observations: of any rows, one tensor per sensor. actions: of the same rows, continuous and one-hot,
        concatenated. members: int64 [F, n], the row of each agent, −1 for absent agents. filled: the existing joint
        steps of sequences that begin without memory, bool [Q, L].
        """
        by_size = sorted_by_size(members, one_more=self.memory is not None)
        self._update_most(by_size)
        encoded = self.encoder.forward(
            observations_as_floats([observations[i][by_size.rows] for i in self._agent_sensors])
        )
        if self._keep_scale:
            encoded = with_constants(encoded)
        features = self.body.forward(self._pooled(encoded, actions[by_size.rows], by_size))
        if self.memory is None or filled is None:
            values = self._valued(features, by_size.agents)
            # The row for −1.
            values = torch.cat([values, values.new_zeros((1, values.shape[1]))])[by_size.found]
        else:
            everyone = by_size.found.flatten()
            every = filled.repeat(len(by_size.found), 1)
            start = features.new_zeros((len(every), self.memory.size))
            features = self.memory.unroll(features[everyone], start, every)
            values = self._valued(features, by_size.agents[everyone]).view(*by_size.found.shape, -1)
        return values[0], values[1:].transpose(0, 1)

    def _pooled(self, encoded: Tensor, actions: Tensor, by_size: GroupsBySize) -> Tensor:
        """Returns the mean of all agents after attention, for every version of a joint step: [N, units]."""
        units, rows = self.seen.out_features, [size * joint_steps for size, joint_steps in by_size.sizes]
        embedded = [
            torch.split(functional.silu(layer.forward(inputs)), rows)
            for layer, inputs in (
                (self.seen, encoded),
                (self.seen_acting, torch.cat([encoded, actions], dim=1)),
            )
        ]
        # Common to both kinds of agents, so computed for groups of all sizes at once.
        both = [
            torch.stack([kind.view(-1, size, units) for kind in kinds], dim=1).view(-1, units)
            for (size, _), *kinds in zip(by_size.sizes, *embedded, strict=True)
        ]
        entities = standardized(torch.cat(both), units)
        query, key, mix = (part.view(-1, _HEADS, units // _HEADS) for part in self._compared(entities))
        projected = project_heads(mix, self.output.weight, entities + self.output.bias)
        parts = [torch.split(part, [2 * count for count in rows]) for part in (query, key, projected)]
        pooled = []
        for k, (size, _) in enumerate(by_size.sizes):
            # There is no padding, so only an agent's other kind is masked.
            kinds = self._shown_actions(size, entities.device)
            attended = attend(parts[0][k], parts[1][k], parts[2][k], kinds)
            pooled.append(standardized(attended, units).mean(dim=2).flatten(0, 1))
        return torch.cat(pooled)

    def _compared(self, entities: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of the attention, by one product. [N, units] each"""
        layers = (self.query, self.key, self.mix)
        weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
        return linear(entities, weight, bias).chunk(3, dim=1)

    def _shown_actions(self, size: int, device: torch.device) -> Tensor:
        """Whether each agent's action is shown: none in the value, all but one in each baseline. bool [V, r]"""
        none = torch.zeros((1, size), dtype=torch.bool, device=device)
        all_but_one = ~torch.eye(size, dtype=torch.bool, device=device)
        return torch.cat([none, all_but_one] + [~none] * (self.memory is not None))

    def _valued(self, features: Tensor, agents: Tensor) -> Tensor:
        """Returns values, [N, signals], from features and numbers of agents."""
        share = 2.0 * agents.to(features.dtype).unsqueeze(1) / self.most - 1.0
        return self.value.forward(torch.cat([features, share], dim=1)).squeeze(1)

    @torch.no_grad()
    def _update_most(self, by_size: GroupsBySize) -> None:
        if self.training and by_size.sizes:
            self.most.clamp_(min=float(by_size.sizes[-1][0]))
