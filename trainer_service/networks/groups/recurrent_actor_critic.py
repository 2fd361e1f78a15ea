"""Decentralized actors and central critics, with memory. B joint steps, n agents, P places of agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.networks.groups.histories import GroupInput, Histories, StackedMemory
from trainer_service.networks.groups.stacked import StackedLinear, make_stacked_body
from trainer_service.networks.groups.stacked_actor_critic import (
    CentralCritics,
    JointInputs,
    StackedActors,
    each_through,
)
from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class RecurrentActors(StackedActors):
    """Actors μ_i with a memory of agent i's observations."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        memory: MemorySettings,
        *,
        agent_sensors: Sequence[int],
        num_agents: int,
        shared: bool,
        ids: bool,
    ) -> None:
        """As StackedActors. memory: of each actor."""
        super().__init__(
            agent_spec,
            settings,
            agent_sensors=agent_sensors,
            num_agents=num_agents,
            shared=shared,
            ids=ids,
        )
        count = 1 if shared else num_agents
        self.memory = StackedMemory(count, self.body.output_size, memory)
        self.memory_size = self.policy_memory_size = self.memory.size
        self.output = StackedLinear(count, self.memory.output_size, self.actions.size, gain=0.1)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Implements DecentralizedActors."""
        outputs, next_memories = self.step_outputs(observations, memories)
        return self.actions.forward(outputs), next_memories

    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Continuous actions before tanh and logits, side by side, after all that came before. [B, n, C + K]

        Raises ValueError without histories.
        """
        histories = _required(seen.histories)
        inputs = torch.cat(list(seen.observations), dim=2)
        features = each_through(self.body, inputs, self._shared, self._ids)
        remembered = self.memory.unroll(histories.places(features), histories)[histories.selected]
        outputs = each_through(self.output, remembered, self._shared)
        return outputs if self.has_action is None else outputs * self.has_action

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """The same of one step of M single agents, [M, C + K], and what they remember next."""
        observed = torch.cat([observations[i] for i in self._agent_sensors], dim=1)
        ids = observations[-1]
        if self._shared:
            inputs = torch.cat([observed, ids], dim=1) if self._ids else observed
            remembered, next_memories = self.memory.step(self.body.of(0, inputs), memories, ids)
            output = self.output.of(0, remembered)
            return output if self.has_action is None else output * (ids @ self.has_action), next_memories
        # Everyone computes everything: a step is small, and this is what an exported model does.
        features = [self.body.of(k, observed) * ids[:, k : k + 1] for k in range(self._num_agents)]
        remembered, next_memories = self.memory.step(torch.stack(features).sum(dim=0), memories, ids)
        outputs = [self.output.of(k, remembered) * ids[:, k : k + 1] for k in range(self._num_agents)]
        return torch.stack(outputs).sum(dim=0), next_memories

    def _imitator(self, agent: int) -> Imitator:
        return replace(super()._imitator(agent), memory=self.memory.of(agent))


class RecurrentCritics(CentralCritics):
    """Critics with a memory of everyone's observations while agent i was present.

    What was seen is summed up first, and one more layer joins that with the actions. No agent sees what a critic sees
    while it acts, so what critics remember is not stored: they begin without memory where a sequence begins.
    """

    values_absent_agents = False
    """They have no memory of their own to be valued after."""

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
        """As StackedCritics. memory: of each critic."""
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
        histories = _required(seen.histories)
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


def _required(histories: Histories | None) -> Histories:
    if histories is None:
        raise ValueError("networks with memory are shown sequences")
    return histories
