"""The actors of a group: one for all its agents, or one each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.encoders.encoder import Trunk
from trainer_service.networks.encoders.layers import observations_as_floats
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.policies.action_heads import ActionHeads, ActionParameters
from unity_bridge.specs import BehaviorSpec


class Actor(nn.Module):
    """A trunk and its action heads."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings) -> None:
        super().__init__()
        self.trunk = Trunk(spec, settings)
        self.actions = ActionHeads(self.trunk.output_size, spec.action_spec)

    def forward(self, observations: Sequence[Tensor], sequences: Sequences | None) -> ActionParameters:
        """[B, …] per sensor to the actions of B agents; sequences say how the rows follow each other."""
        features = self.trunk.unroll(self.trunk.forward(observations), sequences)
        return self.actions.forward(features)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the parameters of one step of B agents, and what they remember."""
        features, kept = self.trunk.step(observations, memories)
        return self.actions.forward(features), kept


class GroupActors(nn.Module):
    """Actors π(a|o) of all agents of a group: one for all, or one each, selected by a sensor with their ids."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        index_sensor: int | None,
    ) -> None:
        """agent_sensors: what an actor decides from; index_sensor: the sensor that selects the actor, if any."""
        super().__init__()
        self._agent_sensors = tuple(agent_sensors)
        self._index_sensor = index_sensor
        agent_spec = replace(spec, observation_specs=tuple(spec.observation_specs[i] for i in agent_sensors))
        count = 1 if index_sensor is None else spec.observation_specs[index_sensor].size
        self.each = nn.ModuleList(Actor(agent_spec, settings) for _ in range(count))
        self.memory_size = self.policy_memory_size = self.actor.memory_size

    def __iter__(self) -> Iterator[Actor]:
        return iter(cast(Sequence[Actor], self.each))

    @property
    def actor(self) -> Trunk:
        """The first one's trunk, which all others resemble."""
        return next(iter(self)).trunk

    @property
    def actions(self) -> ActionHeads:
        """The first one's heads: what can be done is the same for all."""
        return next(iter(self)).actions

    def policy(self, observations: Sequence[Tensor], sequences: Sequences | None = None) -> ActionParameters:
        """Returns the parameters of B agents' actions. One tensor [B, …] per sensor, as the normalizer leaves them."""
        seen = self._seen(observations)
        if self._index_sensor is None:
            return next(iter(self)).forward(seen, sequences)
        ids = observations[self._index_sensor]
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            return _weighted([actor.forward(seen, sequences) for actor in self], ids)
        return self._apart(ids, seen, sequences)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the parameters of one step with memory, [B, memory_size], and what is remembered next."""
        seen = self._seen(observations)
        if self._index_sensor is None:
            return next(iter(self)).step(seen, memories)
        # Everyone computes everything: a step is small, and this is what an exported model does.
        ids = observations[self._index_sensor]
        found = [actor.step(seen, memories) for actor in self]
        kept = sum(one * ids[:, k : k + 1] for k, (_, one) in enumerate(found))
        return _weighted([parameters for parameters, _ in found], ids), cast(Tensor, kept)

    def _seen(self, observations: Sequence[Tensor]) -> list[Tensor]:
        return observations_as_floats([observations[i] for i in self._agent_sensors])

    def _apart(self, ids: Tensor, seen: list[Tensor], sequences: Sequences | None) -> ActionParameters:
        """Applies each actor to its own agents' rows."""
        numbers = ids.argmax(dim=1)
        rows = [(numbers == k).nonzero().squeeze(1) for k in range(len(self.each))]
        parts = [
            actor.forward([sensor[mine] for sensor in seen], _sequences_of(sequences, numbers, k))
            for k, (actor, mine) in enumerate(zip(self, rows, strict=True))
        ]
        back = torch.argsort(torch.cat(rows))
        return _gathered(parts, lambda columns: torch.cat(columns)[back])


def _sequences_of(sequences: Sequences | None, numbers: Tensor, k: int) -> Sequences | None:
    """The sequences of one agent: all steps of a sequence are of the same."""
    if sequences is None:
        return None
    lengths = sequences.filled.sum(dim=1)
    mine = numbers[lengths.cumsum(dim=0) - lengths] == k
    return Sequences(sequences.memories[mine], sequences.filled[mine])


def _weighted(parts: Sequence[ActionParameters], ids: Tensor) -> ActionParameters:
    return _gathered(
        parts,
        lambda columns: cast(Tensor, sum(one * ids[:, k : k + 1] for k, one in enumerate(columns))),
    )


def _gathered(parts: Sequence[ActionParameters], join: Callable[[list[Tensor]], Tensor]) -> ActionParameters:
    """Joins parameters; deviations become [B, C], for they differ by agent."""
    return ActionParameters(
        join([part.mean for part in parts]),
        join([part.log_sigma.expand_as(part.mean) for part in parts]),
        join([part.logits for part in parts]),
    )
