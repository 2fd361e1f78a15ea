"""Action values of a group's agents, by one network for all agents or one for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import kaiming_linear, observations_as_floats
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.groups.histories import Histories, StackedMemory
from trainer_service.learning.networks.groups.stacked import StackedLinear, make_stacked_body
from trainer_service.learning.networks.members import (
    MemberNetworks,
    MemberView,
    discrete_of_agents,
    each_made_by,
)
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.policies.q_network import GreedyNetwork, as_parameters
from unity_bridge.specs import BehaviorSpec, ObservationSpec

_GAIN = 0.1
"""Near zero, so that initially no choice is better than another."""


class GroupQNetwork(GreedyNetwork):
    """A value network that acts for single agents, and evaluates whole groups' choices."""

    @abstractmethod
    def group_q_values(self, observations: Sequence[Tensor], histories: Histories | None = None) -> Tensor:
        """Returns Q_i(o_i, ·) of every member: [B, n, K].

        observations: each member's own, normalized, one [B, n, …] per sensor; zeros for absent members. histories:
        with memory, the order of earlier observations; see GroupInput.
        """

    def imitators(self) -> list[Imitator]:
        """Returns the agents' networks, for learning from single agents' demonstrations. May raise ValueError."""
        raise ValueError("an agent that hears the others cannot learn from what a single one saw")


class SharedQNetwork(GroupQNetwork):
    """One network for all agents, with their ids as an option."""

    has_discrete: Tensor | None
    """1 if the agent of an index has a choice. [n, K]; None if all agents have all choices."""

    def __init__(
        self, agent_spec: BehaviorSpec, settings: NetworkSettings, *, agent_sensors: Sequence[int], ids: int
    ) -> None:
        """agent_spec: an agent's own sensors and actions. agent_sensors: their numbers in ``q_values``' observations.

        ids: length of agent ids, which are the last of these observations; 0 without ids.
        """
        super().__init__(agent_spec.action_spec.discrete_branches)
        self._agent_sensors = (*agent_sensors, -1) if ids else tuple(agent_sensors)
        self._ids = ids
        sensors = agent_spec.observation_specs
        inputs = (*sensors, ObservationSpec("ids", (ids,))) if ids else sensors
        self.trunk = Trunk(BehaviorSpec(inputs, agent_spec.action_spec), settings)
        self.memory_size = self.policy_memory_size = self.trunk.memory_size
        self.q = kaiming_linear(self.trunk.output_size, agent_spec.action_spec.mask_size, gain=_GAIN)
        self.register_buffer("has_discrete", discrete_of_agents(agent_spec), persistent=False)

    def q_values(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements GreedyNetwork."""
        inputs = observations_as_floats([observations[i] for i in self._agent_sensors])
        q = self.q.forward(self.trunk.forward(inputs))
        return q if self.has_discrete is None else q * (observations[-1] @ self.has_discrete)

    def step_q_values(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements GreedyNetwork."""
        inputs = observations_as_floats([observations[i] for i in self._agent_sensors])
        features, next_memories = self.trunk.step(inputs, memories)
        q = self.q.forward(features)
        return q if self.has_discrete is None else q * (observations[-1] @ self.has_discrete), next_memories

    def group_q_values(self, observations: Sequence[Tensor], histories: Histories | None = None) -> Tensor:
        """Implements GroupQNetwork."""
        if histories is not None:
            inputs = [histories.places(sensor) for sensor in observations]
            if self._ids:
                inputs.append(torch.eye(self._ids, device=inputs[0].device)[histories.agents])
            features = self.trunk.encode(EncoderInput(inputs, histories.sequences))
            q = self.q.forward(features[histories.selected])
            return q if self.has_discrete is None else q * self.has_discrete
        groups, num_agents = observations[0].shape[:2]
        inputs = observations_as_floats(observations)
        if self._ids:
            inputs.append(torch.eye(self._ids, device=inputs[0].device).expand(groups, -1, -1))
        if not self.trunk.encoder.vector_sizes:
            inputs = [sensor.flatten(0, 1) for sensor in inputs]
        features = self.trunk.body.forward(self.trunk.encoder.forward(inputs).flatten(0, -2))
        q = self.q.forward(features).view(groups, num_agents, -1)
        return q if self.has_discrete is None else q * self.has_discrete

    def imitators(self) -> list[Imitator]:
        """Implements GroupQNetwork."""
        return Imitator.of_trunk(self.trunk, self._decide).of_each(self._ids)

    def _decide(self, features: Tensor) -> ActionParameters:
        return as_parameters(self.q.forward(features))


class SeparateQNetworks(GroupQNetwork):
    """A network for each agent index of a group, all computed at once. Sensors must be vectors."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        num_agents: int,
    ) -> None:
        """agent_spec, agent_sensors: as in SharedQNetwork. The last observation is the id that selects a network.

        Raises ValueError if a sensor is not a vector.
        """
        super().__init__(agent_spec.action_spec.discrete_branches)
        require_vectors("share: none", agent_spec.observation_specs)
        self._agent_sensors = tuple(agent_sensors)
        self._num_agents = num_agents
        inputs = sum(sensor.size for sensor in agent_spec.observation_specs)
        self.body = make_stacked_body(num_agents, inputs, settings)
        self.memory = None
        features = self.body.output_size
        if settings.memory is not None:
            self.memory = StackedMemory(num_agents, features, settings.memory)
            features = self.memory.output_size
            self.memory_size = self.policy_memory_size = self.memory.size
        self.q = StackedLinear(num_agents, features, agent_spec.action_spec.mask_size, gain=_GAIN)

    def q_values(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements GreedyNetwork."""
        inputs = torch.cat([observations[i] for i in self._agent_sensors], dim=1)
        ids = observations[-1]
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            # Plain products, since inference engines may not support other operators.
            one_by_one = [
                self.q.of(k, self.body.of(k, inputs)) * ids[:, k : k + 1] for k in range(self._num_agents)
            ]
            return torch.stack(one_by_one).sum(dim=0)
        agent_index, position, rows = _columns_by_agent(ids)
        laid_out = inputs.new_zeros(rows, self._num_agents, inputs.shape[1])
        laid_out[position, agent_index] = inputs
        return self._of(laid_out)[position, agent_index]

    def step_q_values(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements GreedyNetwork."""
        if self.memory is None:
            return super().step_q_values(observations, memories)
        inputs, ids = torch.cat([observations[i] for i in self._agent_sensors], dim=1), observations[-1]
        # Every network computes every row: a step is small, and exported models do the same.
        features = [self.body.of(k, inputs) * ids[:, k : k + 1] for k in range(self._num_agents)]
        remembered, next_memories = self.memory.step(torch.stack(features).sum(dim=0), memories, ids)
        values = [self.q.of(k, remembered) * ids[:, k : k + 1] for k in range(self._num_agents)]
        return torch.stack(values).sum(dim=0), next_memories

    def group_q_values(self, observations: Sequence[Tensor], histories: Histories | None = None) -> Tensor:
        """Implements GroupQNetwork."""
        inputs = torch.cat(list(observations), dim=2)
        if self.memory is None or histories is None:
            return self._of(inputs)
        features = self.memory.unroll(histories.places(self.body.forward(inputs)), histories)
        return self.q.forward(features[histories.selected])

    def imitators(self) -> list[Imitator]:
        """Implements GroupQNetwork."""
        memories = [None if self.memory is None else self.memory.of(k) for k in range(self._num_agents)]
        return [
            Imitator(partial(self._encode, k), memory, partial(self._decide, k))
            for k, memory in enumerate(memories)
        ]

    def _encode(self, agent: int, observations: Sequence[Tensor]) -> Tensor:
        return self.body.of(agent, torch.cat(list(observations), dim=1))

    def _decide(self, agent: int, features: Tensor) -> ActionParameters:
        return as_parameters(self.q.of(agent, features))

    def _of(self, features: Tensor) -> Tensor:
        return self.q.forward(self.body.forward(features))


class MemberQNetworks(GroupQNetwork):
    """A network for each behavior of a heterogeneous group, or for each agent. Missing actions have the value 0."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        agent_sensors: Sequence[int],
        of_member: Callable[[MemberView], GroupQNetwork],
    ) -> None:
        """agent_spec, agent_sensors: as in SharedQNetwork. The last observation is the agent's id."""
        super().__init__(agent_spec.action_spec.discrete_branches)
        self.members = MemberNetworks(
            agent_spec, agent_sensors, of_member, lambda view: view.discrete, agent_spec.action_spec.mask_size
        )
        first = cast(GroupQNetwork, self.members.each[0])
        self.memory_size = self.policy_memory_size = first.memory_size

    def q_values(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements GreedyNetwork."""
        return self.members.of_agents(observations, lambda network, own: network.q_values(own))

    def step_q_values(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements GreedyNetwork."""
        return self.members.step(observations, lambda network, own: network.step_q_values(own, memories))

    def group_q_values(self, observations: Sequence[Tensor], histories: Histories | None = None) -> Tensor:
        """Implements GroupQNetwork."""

        def of_member(view: MemberView, network: GroupQNetwork, inputs: list[Tensor]) -> Tensor:
            if histories is None:
                return network.group_q_values(inputs)
            own_histories = histories.of(view.agents)
            if own_histories is None:
                groups = len(histories.selected)
                return inputs[0].new_zeros((groups, inputs[0].shape[1], view.spec.action_spec.mask_size))
            return network.group_q_values(inputs, own_histories)

        return self.members.of_groups(observations, of_member)

    def imitators(self) -> list[Imitator]:
        """Raises ValueError: demonstrations are of one behavior, and do not identify members."""
        raise ValueError("demonstrations are of one behavior; a team of several cannot learn from them")


def make_q_network(
    agent_spec: BehaviorSpec,
    settings: NetworkSettings,
    *,
    agent_sensors: Sequence[int],
    num_agents: int,
    share: Sharing,
    ids: bool,
) -> GroupQNetwork:
    """Makes a network of agents' values from their own observations: one for all, one per behavior, or one each.

    agent_spec, agent_sensors: as in SharedQNetwork. ids: whether a network of several agents gets their ids.
    """
    if agent_spec.members and share != "full":
        of_member = each_made_by(make_q_network, settings, share, ids=ids)
        return MemberQNetworks(agent_spec, agent_sensors, of_member)
    if share == "none":
        return SeparateQNetworks(agent_spec, settings, agent_sensors=agent_sensors, num_agents=num_agents)
    return SharedQNetwork(agent_spec, settings, agent_sensors=agent_sensors, ids=num_agents if ids else 0)


def require_vectors(why: str, sensors: Sequence[ObservationSpec]) -> None:
    """Raises ValueError for a sensor that is not a vector."""
    for sensor in sensors:
        if len(sensor.shape) != 1:
            raise ValueError(
                f"{why} needs sensors that are vectors; '{sensor.name}' has shape {sensor.shape}"
            )


def _columns_by_agent(ids: Tensor) -> tuple[Tensor, Tensor, int]:
    """Returns the cells of M agents in a table with one column per agent index: columns, rows, and number of rows.

    ids: one-hot [M, n].
    """
    before = ids.cumsum(dim=0) - ids
    agent_index = ids.argmax(dim=1)
    position = before.gather(1, agent_index.unsqueeze(1)).squeeze(1).long()
    return agent_index, position, int(position.max()) + 1 if len(position) else 0
