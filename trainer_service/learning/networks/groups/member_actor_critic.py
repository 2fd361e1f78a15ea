"""Actors and critics of the behaviors of a heterogeneous group, on their own sensors and with their own actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.stacked_actor_critic import (
    CentralCritics,
    DecentralizedActors,
    RecurrentCritics,
    StackedActors,
    StackedCritics,
)
from trainer_service.learning.networks.members import (
    MemberNetworks,
    MemberView,
    action_columns,
    each_made_by,
    member_views,
)
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.deterministic_actor import DirectActions
from trainer_service.learning.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class MemberActors(DecentralizedActors):
    """Actors for each behavior of a heterogeneous group, or for each agent. Missing actions are 0, before tanh too."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        agent_sensors: Sequence[int],
        of_member: Callable[[MemberView], DecentralizedActors],
    ) -> None:
        """agent_spec, agent_sensors: as in StackedActors. The last observation is the agent's id."""
        super().__init__()
        self.actions = DirectActions(agent_spec.action_spec)
        columns = partial(action_columns, agent_spec.action_spec)
        self.members = MemberNetworks(agent_spec, agent_sensors, of_member, columns, self.actions.size)
        first = cast(StackedActors, self.members.each[0])
        self.memory_size = self.policy_memory_size = first.memory_size

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Implements DecentralizedActors."""
        outputs = self.members.of_agents(observations, lambda actors, own: actors.outputs(own))
        return self.actions.forward(outputs)

    def group_policy(self, seen: GroupInput) -> ActionParameters:
        """Implements DecentralizedActors."""

        def of_member(view: MemberView, actors: StackedActors, inputs: list[Tensor]) -> Tensor:
            histories = None if seen.histories is None else seen.histories.of(view.agents)
            if seen.histories is not None and histories is None:
                rows, agents = len(seen.histories.selected), inputs[0].shape[1]
                return inputs[0].new_zeros((rows, agents, actors.actions.size))
            return actors.group_outputs(GroupInput(inputs, histories))

        return self.actions.forward(self.members.of_groups(seen.observations, of_member))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Implements DecentralizedActors."""
        outputs, next_memories = self.members.step(
            observations, lambda actors, own: actors.step_outputs(own, memories)
        )
        return self.actions.forward(outputs), next_memories

    def imitators(self) -> list[Imitator]:
        """Raises ValueError: demonstrations are of one behavior, and do not identify members."""
        raise ValueError("demonstrations are of one behavior; a team of several cannot learn from them")


class MemberCritics(CentralCritics):
    """A critic for each behavior of a heterogeneous group. Its inputs include the agent's id within the behavior."""

    def __init__(self, agent_spec: BehaviorSpec, settings: NetworkSettings) -> None:
        """agent_spec: as in the actors."""
        super().__init__()
        views = member_views(agent_spec, ())
        everyone = views[-1].agents.stop
        each = [
            _stacked_critics(agent_spec, settings, everyone, shared=True, critics=view.agents)
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
) -> DecentralizedActors:
    """Makes the actors of the settings. Arguments as in StackedActors.

    Raises ValueError if a sensor is not a vector.
    """
    if agent_spec.members and share != "full":
        of_member = each_made_by(make_actors, settings, share, ids=ids)
        return MemberActors(agent_spec, agent_sensors, of_member)
    return StackedActors(
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
    return _stacked_critics(agent_spec, settings, num_agents, shared=share != "none")


def _stacked_critics(
    spec: BehaviorSpec,
    settings: NetworkSettings,
    num_agents: int,
    *,
    shared: bool,
    critics: slice = slice(None),
) -> CentralCritics:
    if settings.memory is None:
        return StackedCritics(spec, settings, num_agents=num_agents, shared=shared, critics=critics)
    return RecurrentCritics(
        spec, settings, settings.memory, num_agents=num_agents, shared=shared, critics=critics
    )
