"""Decentralized actors, and critics with all agents' observations and actions. B joint steps, n agents, P places.

All agents are computed at once, with separate networks or a shared one. Sensors must be vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.learning.networks.groups.group_q_network import require_vectors
from trainer_service.learning.networks.groups.histories import GroupInput, StackedMemory
from trainer_service.learning.networks.groups.stacked import (
    StackedBody,
    StackedLinear,
    StackedNormedBody,
    make_stacked_body,
)
from trainer_service.learning.networks.members import acted_columns, actions_of_agents, observed_columns
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.deterministic_actor import DirectActions
from trainer_service.learning.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class DecentralizedActors(nn.Module, ABC):
    """Actors of the agents of a group. Each has the observations of its own agent only."""

    actions: DirectActions
    memory_size: int = 0
    """Floats of an agent's memory."""
    policy_memory_size: int = 0

    @abstractmethod
    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns the parameters of M single agents' actions, from normalized observations, one [M, …] per sensor."""

    @abstractmethod
    def group_policy(self, seen: GroupInput) -> ActionParameters:
        """Returns the parameters of whole groups' actions, [B, n, …]."""

    @abstractmethod
    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns parameters of one step of M single agents, and their next memories. memories: [M, size].

        Raises ValueError for actors without memory.
        """

    @abstractmethod
    def imitators(self) -> list[Imitator]:
        """Returns the actors, for learning from single agents' demonstrations. Raises ValueError if they cannot."""


class CentralCritics(nn.Module, ABC):
    """Critics Q_i(x, a): the value of a group's actions to each of its agents."""

    values_absent_agents: bool
    """Whether the values of absent agents are valid."""

    @abstractmethod
    def forward(self, seen: GroupInput, present: Tensor, actions: Tensor) -> Tensor:
        """Returns values [B, critics].

        present: whether each agent acts, bool [B, n]. actions: all agents' actions for each critic, continuous and
        one-hot discrete: [B, n critics or 1, n, C + K].
        """


class StackedActors(DecentralizedActors):
    """Actors μ_i(o_i) with optional memory: continuous actions before tanh, and logits of discrete actions."""

    has_action: Tensor | None
    """1 if the agent of an index has a continuous action or choice. [n, C + K]; None if all agents have all of them."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        num_agents: int,
        shared: bool,
        ids: bool,
    ) -> None:
        """agent_spec: sensors and actions of an agent. agent_sensors: their numbers in the observations of ``policy``.

        shared: one network for all agents. ids: whether it gets the agent's one-hot id, the last of these
        observations. Without sharing, the id selects the network. Raises ValueError if a sensor is not a vector.
        """
        super().__init__()
        require_vectors("maddpg", agent_spec.observation_specs)
        self._agent_sensors = tuple(agent_sensors)
        self._num_agents = num_agents
        self._shared, self._ids = shared, shared and ids
        self.actions = DirectActions(agent_spec.action_spec)
        count = 1 if shared else num_agents
        inputs = sum(sensor.size for sensor in agent_spec.observation_specs) + (
            num_agents if self._ids else 0
        )
        self.body = make_stacked_body(count, inputs, settings)
        self.memory, features = None, self.body.output_size
        if settings.memory is not None:
            self.memory = StackedMemory(count, self.body.output_size, settings.memory)
            self.memory_size = self.policy_memory_size = self.memory.size
            features = self.memory.output_size
        self.output = StackedLinear(count, features, self.actions.size, gain=0.1)
        self.register_buffer("has_action", actions_of_agents(agent_spec), persistent=False)

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Implements DecentralizedActors."""
        return self.actions.forward(self.outputs(observations))

    def group_policy(self, seen: GroupInput) -> ActionParameters:
        """Implements DecentralizedActors."""
        return self.actions.forward(self.group_outputs(seen))

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Continuous actions before tanh, and logits, concatenated, of M single agents. [M, C + K]"""
        observed = torch.cat([observations[i] for i in self._agent_sensors], dim=1)
        if self._shared:
            outputs = self._of(0, torch.cat([observed, observations[-1]], dim=1) if self._ids else observed)
            return outputs if self.has_action is None else outputs * (observations[-1] @ self.has_action)
        ids = observations[-1]
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            # Plain products, since inference engines may not support other operators.
            one_by_one = [self._of(k, observed) * ids[:, k : k + 1] for k in range(self._num_agents)]
            return torch.stack(one_by_one).sum(dim=0)
        everyone = observed.unsqueeze(1).expand(-1, self._num_agents, -1)
        outputs = self.output.forward(self.body.forward(everyone))
        return (outputs * ids.unsqueeze(2)).sum(dim=1)

    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Continuous actions before tanh, and logits, concatenated, of all agents of B groups. [B, n, C + K]

        With memory, given all earlier observations. Raises ValueError with memory but without histories.
        """
        features = each_through(self.body, torch.cat(list(seen.observations), dim=2), self._shared, self._ids)
        if self.memory is not None:
            histories = seen.required_histories
            features = self.memory.unroll(histories.places(features), histories)[histories.selected]
        outputs = each_through(self.output, features, self._shared)
        return outputs if self.has_action is None else outputs * self.has_action

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Implements DecentralizedActors."""
        outputs, next_memories = self.step_outputs(observations, memories)
        return self.actions.forward(outputs), next_memories

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """``outputs`` of one step of M single agents, and their next memories."""
        if self.memory is None:
            raise ValueError("there is no memory to step on")
        observed = torch.cat([observations[i] for i in self._agent_sensors], dim=1)
        ids = observations[-1]
        if self._shared:
            inputs = torch.cat([observed, ids], dim=1) if self._ids else observed
            remembered, next_memories = self.memory.step(self.body.of(0, inputs), memories, ids)
            output = self.output.of(0, remembered)
            return output if self.has_action is None else output * (ids @ self.has_action), next_memories
        # Every network computes every row: a step is small, and exported models do the same.
        features = [self.body.of(k, observed) * ids[:, k : k + 1] for k in range(self._num_agents)]
        remembered, next_memories = self.memory.step(torch.stack(features).sum(dim=0), memories, ids)
        outputs = [self.output.of(k, remembered) * ids[:, k : k + 1] for k in range(self._num_agents)]
        return torch.stack(outputs).sum(dim=0), next_memories

    def imitators(self) -> list[Imitator]:
        """Implements DecentralizedActors."""
        if self._shared:
            return self._imitator(0).of_each(self._num_agents if self._ids else 0)
        return [self._imitator(k) for k in range(self._num_agents)]

    def _imitator(self, agent: int) -> Imitator:
        memory = None if self.memory is None else self.memory.of(agent)
        return Imitator(partial(self._encode, agent), memory, partial(self._decide, agent))

    def _encode(self, agent: int, observations: Sequence[Tensor]) -> Tensor:
        return self.body.of(agent, torch.cat(list(observations), dim=1))

    def _decide(self, agent: int, features: Tensor) -> ActionParameters:
        return self.actions.forward(self.output.of(agent, features))

    def _of(self, agent: int, inputs: Tensor) -> Tensor:
        return self.output.of(agent, self.body.of(agent, inputs))


class JointInputs(nn.Module):
    """Inputs of critics: all agents' observations and actions, concatenated, without padding."""

    observation_columns: Tensor | None
    """Columns of observations that are not padding; None for all."""

    action_columns: Tensor | None
    """Columns of actions that are not padding; None for all."""

    def __init__(self, agent_spec: BehaviorSpec, num_agents: int) -> None:
        super().__init__()
        sensors, actions = agent_spec.observation_specs, agent_spec.action_spec
        observed, acted = observed_columns(agent_spec, range(len(sensors))), acted_columns(agent_spec)
        self.register_buffer("observation_columns", observed, persistent=False)
        self.register_buffer("action_columns", acted, persistent=False)
        size = num_agents * sum(sensor.size for sensor in sensors) if observed is None else len(observed)
        self.observed_size = size + num_agents
        """Size of all agents' observations and presence."""
        each = actions.continuous_size + actions.mask_size
        self.acted_size = num_agents * each if acted is None else len(acted)
        """Size of all agents' actions."""

    def observed(self, observations: Sequence[Tensor], present: Tensor) -> Tensor:
        """Observations, one [B, n, …] per sensor, and presence, bool [B, n], to [B, observed_size]."""
        presence = present.to(observations[0].dtype)
        if self.observation_columns is None:
            return torch.cat([*observations, presence.unsqueeze(2)], dim=2).flatten(1)
        observed = torch.cat(list(observations), dim=2).flatten(1)[:, self.observation_columns]
        return torch.cat([observed, presence], dim=1)

    def acted(self, actions: Tensor, present: Tensor, critics: slice) -> Tensor:
        """Maps the actions for each agent's critic, [B, n or 1, n, C + K], to [B, critics, acted_size]."""
        acted = (actions * present.view(len(present), 1, -1, 1)).flatten(2)
        if self.action_columns is not None:
            acted = acted[:, :, self.action_columns]
        return acted.expand(-1, present.shape[1], -1)[:, critics]


class StackedCritics(CentralCritics):
    """Critics of agents, present or not."""

    values_absent_agents = True

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        num_agents: int,
        shared: bool,
        critics: slice = slice(None),
    ) -> None:
        """agent_spec, shared: as in the actors. A shared critic gets the agent's id.

        critics: the agent indices of these critics; by default all.
        """
        super().__init__()
        self._shared, self._critics = shared, critics
        self.joint = JointInputs(agent_spec, num_agents)
        served = len(range(num_agents)[critics])
        count = 1 if shared else served
        inputs = self.joint.observed_size + self.joint.acted_size + (served if shared else 0)
        self.body = make_stacked_body(count, inputs, settings)
        self.value = StackedLinear(count, self.body.output_size, 1, gain=0.1)

    def forward(self, seen: GroupInput, present: Tensor, actions: Tensor) -> Tensor:
        """Implements CentralCritics."""
        observed = self.joint.observed(seen.observations, present)
        acted = self.joint.acted(actions, present, self._critics)
        inputs = torch.cat([observed.unsqueeze(1).expand(-1, acted.shape[1], -1), acted], dim=2)
        features = each_through(self.body, inputs, self._shared, self._shared)
        return each_through(self.value, features, self._shared).squeeze(2)


class RecurrentCritics(CentralCritics):
    """Critics with a memory of all agents' observations while agent i was present.

    The memory processes the observations, and one more layer adds the actions. While acting, no agent has a critic's
    inputs, so memories of critics are not stored: they start at zero in each sequence.
    """

    values_absent_agents = False
    """They have no memories of their own to compute values from."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        memory: MemorySettings,
        *,
        num_agents: int,
        shared: bool,
        critics: slice = slice(None),
    ) -> None:
        """Arguments as in StackedCritics. memory: of each critic."""
        super().__init__()
        self._shared, self._critics = shared, critics
        self.joint = JointInputs(agent_spec, num_agents)
        served = len(range(num_agents)[critics])
        count = 1 if shared else served
        self.body = make_stacked_body(count, self.joint.observed_size + (served if shared else 0), settings)
        self.memory = StackedMemory(count, self.body.output_size, memory)
        single = settings.model_copy(update={"num_layers": 1})
        self.joined = make_stacked_body(count, self.memory.output_size + self.joint.acted_size, single)
        self.value = StackedLinear(count, self.joined.output_size, 1, gain=0.1)

    def forward(self, seen: GroupInput, present: Tensor, actions: Tensor) -> Tensor:
        """Implements CentralCritics. Raises ValueError without histories."""
        histories = seen.required_histories
        acted = self.joint.acted(actions, present, self._critics)
        own = histories.of(self._critics)
        if own is None:
            return acted.new_zeros(acted.shape[:2])
        observed = self.joint.observed(seen.observations, histories.present)
        everyone = observed.unsqueeze(1).expand(-1, acted.shape[1], -1)
        features = own.places(each_through(self.body, everyone, self._shared, self._shared))
        remembered = self.memory.unroll(features, own.without_memories(self.memory.size))
        joined = each_through(self.joined, torch.cat([remembered[own.selected], acted], dim=2), self._shared)
        return each_through(self.value, joined, self._shared).squeeze(2)


def each_through(
    layers: StackedBody | StackedNormedBody | StackedLinear, inputs: Tensor, shared: bool, ids: bool = False
) -> Tensor:
    """Applies separate layers or shared ones to all agents' inputs, [B, n, F]. ids: whether shared ones get ids."""
    if not shared:
        return layers.forward(inputs)
    groups, num_agents = inputs.shape[:2]
    rows = inputs.flatten(0, 1)
    if ids:
        rows = torch.cat([rows, torch.eye(num_agents, device=rows.device).repeat(groups, 1)], dim=1)
    return layers.forward(rows.unsqueeze(1)).view(groups, num_agents, -1)
