"""Actors and critics of the behaviors of a heterogeneous group, on their own sensors and with their own actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.networks.groups.histories import Histories
from trainer_service.networks.groups.recurrent_actor_critic import RecurrentActors, RecurrentCritics
from trainer_service.networks.groups.stacked_actor_critic import StackedActors, StackedCritics
from trainer_service.networks.members import MemberNetworks, MemberView, action_columns, member_views
from trainer_service.networks.policies.action_heads import ActionParameters
from trainer_service.networks.policies.deterministic_actor import DirectActions
from trainer_service.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec


class MemberActors(nn.Module):
    """Actors for each behavior of a heterogeneous group, or for each agent. Missing actions are 0, before tanh too."""

    def __init__(
        self,
        agent_spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        agent_sensors: Sequence[int],
        share: Sharing,
        ids: bool,
    ) -> None:
        """agent_spec, agent_sensors, ids: as for StackedActors. The last observation is the agents' ids.

        share: ``group`` or ``none``. Raises ValueError where a sensor is no vector.
        """
        super().__init__()
        self.actions = DirectActions(agent_spec.action_spec)

        def of_member(view: MemberView) -> StackedActors:
            make = StackedActors
            if settings.memory is not None:
                make = cast(type[StackedActors], partial(RecurrentActors, memory=settings.memory))
            return make(
                view.spec,
                settings,
                agent_sensors=range(len(view.sensors)),
                num_agents=view.agents.stop - view.agents.start,
                shared=share == "group",
                ids=ids,
            )

        columns = partial(action_columns, agent_spec.action_spec)
        self.members = MemberNetworks(agent_spec, agent_sensors, of_member, columns, self.actions.size)
        first = cast(StackedActors, self.members.each[0])
        self.memory_size = self.policy_memory_size = first.memory_size

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """As that of StackedActors."""
        outputs = self.members.of_agents(observations, lambda actors, own: actors.outputs(own))
        return self.actions.forward(outputs)

    def group_policy(
        self, observations: Sequence[Tensor], histories: Histories | None = None
    ) -> ActionParameters:
        """As that of StackedActors."""

        def of_member(view: MemberView, actors: StackedActors, inputs: list[Tensor]) -> Tensor:
            own_histories = None if histories is None else histories.of(view.agents)
            if histories is not None and own_histories is None:
                return inputs[0].new_zeros((len(histories.selected), inputs[0].shape[1], actors.actions.size))
            return actors.group_outputs(inputs, own_histories)

        return self.actions.forward(self.members.of_groups(observations, of_member))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """As that of RecurrentActors."""
        outputs, next_memories = self.members.step(
            observations, lambda actors, own: actors.step_outputs(own, memories)
        )
        return self.actions.forward(outputs), next_memories

    def imitators(self) -> list[Imitator]:
        """Raises ValueError: demonstrations are of one behavior, and do not distinguish members."""
        raise ValueError("demonstrations are of one behavior; a team of several cannot learn from them")


class MemberCritics(nn.Module):
    """A critic for each behavior of a heterogeneous group, which is given the agent's id among those that it serves."""

    def __init__(self, agent_spec: BehaviorSpec, settings: NetworkSettings) -> None:
        """agent_spec: as for the actors."""
        super().__init__()
        views = member_views(agent_spec, ())
        make: Callable[..., StackedCritics | RecurrentCritics] = StackedCritics
        if settings.memory is not None:
            make = partial(RecurrentCritics, memory=settings.memory)
        everyone = views[-1].agents.stop
        each = [
            make(agent_spec, settings, num_agents=everyone, shared=True, critics=view.agents)
            for view in views
        ]
        self.members = nn.ModuleList(each)
        self.values_absent_agents = each[0].values_absent_agents
        """Whether the values of absent agents mean anything."""

    def forward(
        self,
        observations: Sequence[Tensor],
        present: Tensor,
        actions: Tensor,
        histories: Histories | None = None,
    ) -> Tensor:
        """Values [B, n]; arguments as for StackedCritics."""
        return torch.cat(
            [each.forward(observations, present, actions, histories) for each in self.members], dim=1
        )
