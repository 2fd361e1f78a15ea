"""The actors of a group: one for all agents, one for each behavior of a heterogeneous group, or one for each agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import observations_as_floats
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.members import (
    MemberView,
    PaddedColumns,
    continuous_of_agents,
    member_views,
)
from trainer_service.learning.networks.policies.action_heads import (
    ActionDistributions,
    ActionHeads,
    ActionParameters,
    in_every_row,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec


class AgentActor(nn.Module):
    """A trunk and its action heads."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings) -> None:
        super().__init__()
        self.trunk = Trunk(spec, settings)
        self.actions = ActionHeads(self.trunk.output_size, spec.action_spec)

    def forward(self, observations: Sequence[Tensor], sequences: Sequences | None) -> ActionParameters:
        """Maps [B, …] per sensor to the actions of B agents. sequences: the rows' order in time."""
        features = self.trunk.unroll(self.trunk.forward(observations), sequences)
        return self.actions.forward(features)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the parameters of one step of B agents, and their next memories."""
        features, next_memories = self.trunk.step(observations, memories)
        return self.actions.forward(features), next_memories


class PaddedActions(nn.Module):
    """Scatters a member's own actions into the padded actions of its group."""

    def __init__(self, padded: ActionSpec, view: MemberView) -> None:
        super().__init__()
        self.continuous = PaddedColumns(view.continuous, padded.continuous_size)
        self.discrete = PaddedColumns(view.discrete, padded.mask_size)

    def forward(self, own: ActionParameters) -> ActionParameters:
        """Returns parameters of the group's actions, 0 for other members'. log σ becomes [B, continuous size]."""
        like = torch.cat([own.mean, own.logits], dim=1)
        log_sigma = in_every_row(own.log_sigma, own.mean)
        return ActionParameters(
            self.continuous.forward(own.mean, like),
            self.continuous.forward(log_sigma, like),
            self.discrete.forward(own.logits, like),
        )


class GroupActors(nn.Module):
    """Actors π(a|o) of all agents of a group: one for all, or several that the sensor with agent ids selects.

    In a heterogeneous group, an actor of one member uses only this member's sensors and actions.
    """

    has_continuous: Tensor | None
    """Whether the agent of an index has a continuous action. [n, continuous size]; None if all agents have all."""

    actor_of_agent: Tensor | None
    """The one-hot actor of each agent index. [n, actors]; None if each has its own."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        index_sensor: int | None,
        share: Sharing = "full",
    ) -> None:
        """agent_sensors: inputs of an actor. index_sensor: the sensor with agent ids, if there are several actors."""
        super().__init__()
        if share == "group" and not spec.members:
            share = "full"
        self._index_sensor = index_sensor
        self._selects = share != "full"
        parts = _parts(spec, agent_sensors, index_sensor, share)
        self._sensors = [part.sensors for part in parts]
        self.each = nn.ModuleList(AgentActor(part.spec, settings) for part in parts)
        self.padding = nn.ModuleList()
        self.distributions: ActionDistributions | None = None
        if spec.members:
            self.distributions = ActionDistributions(spec.action_spec)
            if self._selects:
                self.padding.extend(PaddedActions(spec.action_spec, part) for part in parts)
        by_member = torch.eye(len(parts))[list(spec.agent_members)] if share == "group" else None
        self.register_buffer("actor_of_agent", by_member, persistent=False)
        self.register_buffer("has_continuous", continuous_of_agents(spec), persistent=False)
        self.memory_size = self.policy_memory_size = self.actor.memory_size

    def keep(self, agents: slice) -> None:
        """Removes the actors of all other agent indices, in a copy that becomes a model of these agents."""
        if not self._selects:
            return
        of_agent = torch.eye(len(self.each)) if self.actor_of_agent is None else self.actor_of_agent
        kept = of_agent[agents].any(dim=0).nonzero().flatten().tolist()
        self.actor_of_agent = of_agent[:, kept]
        self._sensors = [self._sensors[k] for k in kept]
        self.each = nn.ModuleList(self.each[k] for k in kept)
        self.padding = nn.ModuleList(self.padding[k] for k in kept if len(self.padding))

    def __iter__(self) -> Iterator[AgentActor]:
        return iter(cast(Sequence[AgentActor], self.each))

    @property
    def actor(self) -> Trunk:
        """The first actor's trunk. All trunks have the same shape if agents have the same sensors."""
        return next(iter(self)).trunk

    @property
    def actions(self) -> ActionDistributions:
        """Distributions of all agents' actions, for the parameters of any actor."""
        return next(iter(self)).actions if self.distributions is None else self.distributions

    def policy(self, observations: Sequence[Tensor], sequences: Sequences | None = None) -> ActionParameters:
        """Returns the parameters of B agents' actions. observations: one normalized tensor [B, …] per sensor."""
        if not self._selects:
            parameters = next(iter(self)).forward(self._seen(0, observations), sequences)
        elif torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            parts = [actor.forward(self._seen(k, observations), sequences) for k, actor in enumerate(self)]
            parameters = _weighted(self._padded(parts), self._weights(observations))
        else:
            parameters = self._apart(observations, sequences)
        return self._zero_missing_actions(parameters, observations)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the parameters of one step with memory, [B, memory_size], and the next memories."""
        stepped = [actor.step(self._seen(k, observations), memories) for k, actor in enumerate(self)]
        parameters, next_memories = stepped[0]
        if self._selects:
            # Every actor computes every row: a step is small, and exported models do the same.
            weights = self._weights(observations)
            next_memories = cast(
                Tensor, sum(one * weights[:, k : k + 1] for k, (_, one) in enumerate(stepped))
            )
            parameters = _weighted(self._padded([one for one, _ in stepped]), weights)
        return self._zero_missing_actions(parameters, observations), next_memories

    def _seen(self, k: int, observations: Sequence[Tensor], rows: Tensor | None = None) -> list[Tensor]:
        """The observations of one actor. rows: of its agents; None for all."""
        selected = [observations[i] for i in self._sensors[k]]
        return observations_as_floats(selected if rows is None else [sensor[rows] for sensor in selected])

    def _ids(self, observations: Sequence[Tensor]) -> Tensor:
        if self._index_sensor is None:
            raise ValueError("actors that differ need agents' ids")
        return observations[self._index_sensor]

    def _weights(self, observations: Sequence[Tensor]) -> Tensor:
        """Returns 1 for the actor of each row's agent, 0 for other actors. [B, actors]"""
        ids = self._ids(observations)
        return ids if self.actor_of_agent is None else ids @ self.actor_of_agent

    def _padded(self, parts: Sequence[ActionParameters]) -> Sequence[ActionParameters]:
        if not len(self.padding):
            return parts
        return [cast(PaddedActions, pad).forward(part) for pad, part in zip(self.padding, parts, strict=True)]

    def _zero_missing_actions(
        self, parameters: ActionParameters, observations: Sequence[Tensor]
    ) -> ActionParameters:
        if self.has_continuous is None:
            return parameters
        has = self._ids(observations) @ self.has_continuous
        return ActionParameters(parameters.mean * has, parameters.log_sigma * has, parameters.logits, has)

    def _apart(self, observations: Sequence[Tensor], sequences: Sequences | None) -> ActionParameters:
        """Applies each actor to its own agents' rows."""
        actors = self._weights(observations).argmax(dim=1)
        rows = [(actors == k).nonzero().squeeze(1) for k in range(len(self.each))]
        parts = [
            actor.forward(self._seen(k, observations, mine), _sequences_of(sequences, actors, k))
            for k, (actor, mine) in enumerate(zip(self, rows, strict=True))
        ]
        back = torch.argsort(torch.cat(rows))
        return _gathered(self._padded(parts), lambda columns: torch.cat(columns)[back])


def _parts(
    spec: BehaviorSpec, agent_sensors: Sequence[int], index_sensor: int | None, share: Sharing
) -> list[MemberView]:
    """The sensors and actions of each actor."""
    if spec.members and share != "full":
        views = member_views(spec, agent_sensors)
        return views if share == "group" else [views[member] for member in spec.agent_members]
    own = replace(spec, observation_specs=tuple(spec.observation_specs[i] for i in agent_sensors))
    count = 1 if index_sensor is None or share == "full" else spec.observation_specs[index_sensor].size
    return [MemberView(slice(None), tuple(agent_sensors), own, (), ())] * count


def _sequences_of(sequences: Sequences | None, actors: Tensor, k: int) -> Sequences | None:
    """The sequences of one actor's agents. actors: of each step. All steps of a sequence are of one agent."""
    if sequences is None:
        return None
    lengths = sequences.filled.sum(dim=1)
    mine = actors[lengths.cumsum(dim=0) - lengths] == k
    return Sequences(sequences.memories[mine], sequences.filled[mine])


def _weighted(parts: Sequence[ActionParameters], ids: Tensor) -> ActionParameters:
    return _gathered(
        parts,
        lambda columns: cast(Tensor, sum(one * ids[:, k : k + 1] for k, one in enumerate(columns))),
    )


def _gathered(parts: Sequence[ActionParameters], join: Callable[[list[Tensor]], Tensor]) -> ActionParameters:
    """Joins parameters. Deviations become [B, C], since they differ between agents."""
    return ActionParameters(
        join([part.mean for part in parts]),
        join([in_every_row(part.log_sigma, part.mean) for part in parts]),
        join([part.logits for part in parts]),
    )
