"""Decentralized actors, and critics with all agents' observations and actions. B joint steps, n agents, P places.

All agents are computed at once, with separate networks or a shared one. Sensors must be vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks, require_vectors
from trainer_service.learning.networks.groups.histories import GroupInput, StackedMemory
from trainer_service.learning.networks.groups.member_networks import MemberNetworks
from trainer_service.learning.networks.groups.stacked import StackedLinear, make_stacked_body
from trainer_service.learning.networks.groups.stacked_networks import StackedNetworks, each_through
from trainer_service.learning.networks.members import acted_columns, member_views, observed_columns
from trainer_service.learning.networks.policies.deterministic_actor import DirectActions
from unity_bridge.specs import BehaviorSpec


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


class StackedActors(StackedNetworks):
    """Actors μ_i(o_i) with optional memory: continuous actions before tanh, and logits of discrete actions."""

    def _apart(self, inputs: Tensor, ids: Tensor) -> Tensor:
        everyone = inputs.unsqueeze(1).expand(-1, self._num_agents, -1)
        outputs = self.output.forward(self.body.forward(everyone))
        return (outputs * ids.unsqueeze(2)).sum(dim=1)


class StackedCritics(CentralCritics):
    """Critics of agents, with optional memory of all agents' observations while agent i was present.

    With memory, it processes the observations, and one more layer adds the actions. While acting, no agent has a
    critic's inputs, so memories of critics are not stored: they start at zero in each sequence.
    """

    observation_columns: Tensor | None
    """Columns of all agents' observations that are not padding; None for all."""

    action_columns: Tensor | None
    """Columns of all agents' actions that are not padding; None for all."""

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
        sensors, actions = agent_spec.observation_specs, agent_spec.action_spec
        observed, acted = observed_columns(agent_spec, range(len(sensors))), acted_columns(agent_spec)
        self.register_buffer("observation_columns", observed, persistent=False)
        self.register_buffer("action_columns", acted, persistent=False)
        inputs = num_agents * sum(sensor.size for sensor in sensors) if observed is None else len(observed)
        each = actions.continuous_size + actions.mask_size
        acted_size = num_agents * each if acted is None else len(acted)
        served = len(range(num_agents)[critics])
        count = 1 if shared else served
        inputs += num_agents + (served if shared else 0)
        memory = settings.memory
        # Without memory, absent agents have values too: no memories of their own are needed to compute these.
        self.values_absent_agents = memory is None
        self.body = make_stacked_body(count, inputs + (acted_size if memory is None else 0), settings)
        self.memory, self.joined, features = None, None, self.body.output_size
        if memory is not None:
            self.memory = StackedMemory(count, features, memory)
            single = settings.model_copy(update={"num_layers": 1})
            self.joined = make_stacked_body(count, self.memory.output_size + acted_size, single)
            features = self.joined.output_size
        self.value = StackedLinear(count, features, 1, gain=0.1)

    def forward(self, seen: GroupInput, present: Tensor, actions: Tensor) -> Tensor:
        """Implements CentralCritics. Raises ValueError with memory but without histories."""
        acted = self._acted(actions, present)
        if self.memory is None or self.joined is None:
            inputs = torch.cat([self._observed(seen, present, acted), acted], dim=2)
            features = each_through(self.body, inputs, self._shared, self._shared)
        else:
            histories = seen.required_histories
            own = histories.of(self._critics)
            if own is None:
                return acted.new_zeros(acted.shape[:2])
            observed = self._observed(seen, histories.present, acted)
            places = own.places(each_through(self.body, observed, self._shared, self._shared))
            remembered = self.memory.unroll(places, own.without_memories(self.memory.size))
            inputs = torch.cat([remembered[own.selected], acted], dim=2)
            features = each_through(self.joined, inputs, self._shared)
        return each_through(self.value, features, self._shared).squeeze(2)

    def _observed(self, seen: GroupInput, present: Tensor, acted: Tensor) -> Tensor:
        """All agents' observations and presence for each critic, without padding. present: bool [groups, n]"""
        presence = present.to(acted.dtype)
        if self.observation_columns is None:
            observed = torch.cat([*seen.observations, presence.unsqueeze(2)], dim=2).flatten(1)
        else:
            own = torch.cat(list(seen.observations), dim=2).flatten(1)[:, self.observation_columns]
            observed = torch.cat([own, presence], dim=1)
        return observed.unsqueeze(1).expand(-1, acted.shape[1], -1)

    def _acted(self, actions: Tensor, present: Tensor) -> Tensor:
        """Maps the actions for each agent's critic, [B, n or 1, n, C + K], to [B, critics, F], without padding."""
        acted = (actions * present.view(len(present), 1, -1, 1)).flatten(2)
        if self.action_columns is not None:
            acted = acted[:, :, self.action_columns]
        return acted.expand(-1, present.shape[1], -1)[:, self._critics]


class MemberCritics(CentralCritics):
    """A critic for each behavior of a heterogeneous group. Its inputs include the agent's id within the behavior."""

    def __init__(self, agent_spec: BehaviorSpec, settings: NetworkSettings) -> None:
        """agent_spec: as in the actors."""
        super().__init__()
        views = member_views(agent_spec, ())
        everyone = views[-1].agents.stop
        each = [
            StackedCritics(agent_spec, settings, num_agents=everyone, shared=True, critics=view.agents)
            for view in views
        ]
        self.members = nn.ModuleList(each)
        self.values_absent_agents = each[0].values_absent_agents

    def forward(self, seen: GroupInput, present: Tensor, actions: Tensor) -> Tensor:
        """Implements CentralCritics."""
        return torch.cat([each.forward(seen, present, actions) for each in self.members], dim=1)


def make_actors(
    agent_spec: BehaviorSpec,
    settings: NetworkSettings,
    *,
    agent_sensors: Sequence[int],
    num_agents: int,
    share: Sharing,
    ids: bool,
) -> AgentNetworks:
    """Makes the actors of the settings. Arguments as in StackedNetworks.

    Raises ValueError if a sensor is not a vector.
    """
    actions = DirectActions(agent_spec.action_spec)
    if agent_spec.members and share != "full":
        return MemberNetworks(
            actions, agent_spec, settings, make_actors, agent_sensors=agent_sensors, share=share, ids=ids
        )
    require_vectors("maddpg", agent_spec.observation_specs)
    return StackedActors(
        actions,
        agent_spec,
        settings,
        agent_sensors=agent_sensors,
        num_agents=num_agents,
        shared=share != "none",
        ids=ids,
    )


def make_critics(
    agent_spec: BehaviorSpec, settings: NetworkSettings, *, num_agents: int, share: Sharing
) -> CentralCritics:
    """Makes the critics of the settings."""
    if agent_spec.members and share == "group":
        return MemberCritics(agent_spec, settings)
    return StackedCritics(agent_spec, settings, num_agents=num_agents, shared=share != "none")
