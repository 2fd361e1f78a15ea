"""Networks of a group's agents, all computed at once: one for each agent index, or one for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.histories import GroupInput, StackedMemory
from trainer_service.learning.networks.groups.stacked import (
    StackedBody,
    StackedLinear,
    StackedNormedBody,
    make_stacked_body,
)
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class StackedNetworks(AgentNetworks):
    """A network for each agent index of a group, or a shared one, with optional memory. Sensors must be vectors."""

    def __init__(
        self,
        actions: Any,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        num_agents: int,
        shared: bool = False,
        ids: bool = False,
    ) -> None:
        """actions, agent_spec: see AgentNetworks. agent_sensors: numbers of its sensors in ``outputs``' observations.

        shared: one network for all agents. ids: whether it gets the agent's one-hot id, the last of these
        observations. Without sharing, the id selects the network.
        """
        super().__init__(actions, agent_spec)
        self._agent_sensors = tuple(agent_sensors)
        self._num_agents = num_agents
        self._shared, self._ids = shared, shared and ids
        count = 1 if shared else num_agents
        sizes = sum(sensor.size for sensor in agent_spec.observation_specs)
        self.body = make_stacked_body(count, sizes + (num_agents if self._ids else 0), settings)
        self.memory, features = None, self.body.output_size
        if settings.memory is not None:
            self.memory = StackedMemory(count, self.body.output_size, settings.memory)
            self.memory_size = self.policy_memory_size = self.memory.size
            features = self.memory.output_size
        # Near zero, so that initially no choice is better than another.
        self.output = StackedLinear(count, features, actions.size, gain=0.1)

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements ActionNetwork."""
        inputs, ids = self._inputs(observations), observations[-1]
        if self._shared or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # not in torch's types
            # Plain products, since inference engines may not support other operators.
            return self.own(self._selected(self._of, inputs, ids), ids)
        return self._apart(inputs, ids)

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements ActionNetwork."""
        if self.memory is None:
            return super().step_outputs(observations, memories)
        inputs, ids = self._inputs(observations), observations[-1]
        # Every network computes every row: a step is small, and exported models do the same.
        features = self._selected(self.body.of, inputs, ids)
        remembered, next_memories = self.memory.step(features, memories[:, : self.memory.size], ids)
        return self.own(self._selected(self.output.of, remembered, ids), ids), next_memories

    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Implements AgentNetworks."""
        features = each_through(self.body, torch.cat(list(seen.observations), dim=2), self._shared, self._ids)
        if self.memory is not None:
            features = self.memory.remembered(features, seen)
        return self.own(each_through(self.output, features, self._shared))

    def imitators(self) -> list[Imitator]:
        """Implements AgentNetworks."""
        if self._shared:
            return self._imitator(0).of_each(self._num_agents if self._ids else 0)
        return [self._imitator(k) for k in range(self._num_agents)]

    def _apart(self, inputs: Tensor, ids: Tensor) -> Tensor:
        """Outputs of single agents, each of its own network."""
        agent_index, position, rows = _columns_by_agent(ids)
        laid_out = inputs.new_zeros(rows, self._num_agents, inputs.shape[1])
        laid_out[position, agent_index] = inputs
        return self.output.forward(self.body.forward(laid_out))[position, agent_index]

    def _inputs(self, observations: Sequence[Tensor]) -> Tensor:
        sensors = (*self._agent_sensors, -1) if self._ids else self._agent_sensors
        return torch.cat([observations[i] for i in sensors], dim=1)

    def _selected(self, of: Callable[[int, Tensor], Tensor], inputs: Tensor, ids: Tensor) -> Tensor:
        """Computes every network for every row, and selects the row's own. ``of`` applies one network."""
        if self._shared:
            return of(0, inputs)
        one_by_one = [of(k, inputs) * ids[:, k : k + 1] for k in range(self._num_agents)]
        return torch.stack(one_by_one).sum(dim=0)

    def _of(self, agent: int, inputs: Tensor) -> Tensor:
        return self.output.of(agent, self.body.of(agent, inputs))

    def _imitator(self, agent: int) -> Imitator:
        memory = None if self.memory is None else self.memory.of(agent)
        return Imitator(partial(self._encode, agent), memory, partial(self._decide, agent))

    def _encode(self, agent: int, observations: Sequence[Tensor]) -> Tensor:
        return self.body.of(agent, torch.cat(list(observations), dim=1))

    def _decide(self, agent: int, features: Tensor) -> ActionParameters:
        return self.parameters_of(self.output.of(agent, features))


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


def _columns_by_agent(ids: Tensor) -> tuple[Tensor, Tensor, int]:
    """Returns the cells of M agents in a table with one column per agent index: columns, rows, and number of rows.

    ids: one-hot [M, n].
    """
    before = ids.cumsum(dim=0) - ids
    agent_index = ids.argmax(dim=1)
    position = before.gather(1, agent_index.unsqueeze(1)).squeeze(1).long()
    return agent_index, position, int(position.max()) + 1 if len(position) else 0
