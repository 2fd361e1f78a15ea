"""Central critics with memory. B joint steps, n agents, P places of agents."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.networks.groups.histories import GroupInput, StackedMemory
from trainer_service.networks.groups.stacked import StackedLinear, make_stacked_body
from trainer_service.networks.groups.stacked_actor_critic import CentralCritics, JointInputs, each_through
from unity_bridge.specs import BehaviorSpec


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
