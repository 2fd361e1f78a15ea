"""The policy of one member of a heterogeneous group, from its own sensors to its own actions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import GroupSettings, Hyperparameters
from trainer_service.learning.algorithms.common.policy_network import PolicyNetwork
from trainer_service.learning.networks.groups.member_networks import MemberNetworks
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.group_actors import GroupActors
from trainer_service.learning.rollout.agent_padding import member_sensors
from trainer_service.learning.rollout.observation_selector import ObservationSelector
from trainer_service.learning.rollout.sensor_roles import SensorRole
from unity_bridge.specs import BehaviorSpec, MemberSpec, ObservationSpec


class GroupMember:
    """One member of a heterogeneous group, for using its policy without the group."""

    def __init__(self, selector: ObservationSelector, number: int, hyper: Hyperparameters) -> None:
        """selector: of the group's learner; number: of the member; hyper: the group's hyperparameters."""
        self.member: MemberSpec = selector.spec.members[number]
        self.number = number
        self.num_agents = self.member.num_agents if _tells_agents_apart(self.member, hyper) else 0
        """Length of the agent indices within this member; 0 if its policy does not need them."""
        self.first_index = selector.spec.agent_members.index(number)
        """The group index of its first agent."""
        self._selector = selector

    @property
    def spec(self) -> BehaviorSpec:
        """Sensors and actions of its agents."""
        return BehaviorSpec(self.member.observation_specs, self.member.action_spec)

    @property
    def inputs(self) -> BehaviorSpec:
        """Inputs of a model of its policy: its own sensors, the group's observations if used, and the index."""
        return replace(self.spec, observation_specs=(*self.member.observation_specs, *self._added))

    @property
    def _added(self) -> tuple[ObservationSpec, ...]:
        """The sensors that the trainer adds for the member's policy."""
        sensors = self._selector.inputs.observation_specs
        ids = int(self._selector.num_agents > 0)
        shared = sensors[len(sensors) - ids - int(self._selector.shows_group) : len(sensors) - ids]
        own = (SensorRole.AGENT_ID.added(self.num_agents),) if self.num_agents else ()
        return (*shared, *own)

    def group_indices(self, agent_indices: NDArray[np.int64] | None, rows: int) -> NDArray[np.int64]:
        """Returns group indices of this member's agents. agent_indices: within the member, [M].

        Raises ValueError for invalid indices.
        """
        if agent_indices is None:
            return np.full(rows, self.first_index, np.int64)
        wrong = agent_indices[(agent_indices < 0) | (agent_indices >= self.member.num_agents)]
        if len(wrong):
            raise ValueError(
                f"agent_indices: '{self.member.behavior}' was trained for indices below {self.member.num_agents}, got "
                f"{wrong[0]}"
            )
        return agent_indices + self.first_index

    def network(self, group: PolicyNetwork) -> MemberPolicyNetwork:
        """Returns the member's part of a group's policy, from ``inputs`` to the member's actions."""
        return MemberPolicyNetwork(group, self, self._selector)


class MemberPolicyNetwork(nn.Module):
    """One member's part of a group's policy, ready to be traced."""

    places: Tensor
    """One-hot group index of each index within the member. [the member's agents, the group's]"""

    def __init__(self, group: PolicyNetwork, member: GroupMember, selector: ObservationSelector) -> None:
        super().__init__()
        self.team = copy.deepcopy(group)
        for module in list(self.team.modules()):
            if isinstance(module, GroupActors | MemberNetworks):
                module.keep(slice(member.first_index, member.first_index + member.member.num_agents))
        self.memory_size = group.memory_size
        sensors, added = selector.inputs.observation_specs, int(selector.shows_group)
        simulators = len(sensors) - added - int(selector.num_agents > 0)
        self._shapes = [sensor.shape for sensor in sensors[:simulators]]
        own = member_sensors(sensors[:simulators], member.member)
        self._own = {sensor: place for place, sensor in enumerate(own)}
        """The member's number of each group sensor that it has."""
        self._added = added
        self._shows_index = selector.num_agents > 0
        self._takes_index = member.num_agents > 0
        last = member.first_index + max(member.num_agents, 1)
        places = torch.eye(selector.num_agents)[member.first_index : last]
        self.register_buffer("places", places, persistent=False)
        actions, own_actions = selector.spec.action_spec, member.member.action_spec
        self._numbers = own_actions.continuous_size
        starts = np.cumsum([0, *actions.discrete_branches])[: own_actions.discrete_size].tolist()
        self._choices = list(zip(starts, own_actions.discrete_branches, strict=True))

    def forward(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Computes action parameters. observations: the member's ``inputs``, one [B, *sensor shape] per sensor."""
        return self._own_actions(self.team.forward(self._padded(observations)))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """One step with memory, [B, memory_size]: returns parameters of the actions, and the next memories."""
        parameters, memories = self.team.step(self._padded(observations), memories)
        return self._own_actions(parameters), memories

    def continuous_actions(self, parameters: ActionParameters) -> tuple[Tensor, Tensor]:
        """Continuous actions for the simulator: sampled, and likeliest. Shapes [B, C]."""
        return self.team.continuous_actions(parameters)

    def discrete_actions(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choices in one branch: sampled, and likeliest. logits: masked, [B, K]. Returns int64 [B, 1]."""
        return self.team.discrete_actions(logits)

    def _padded(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """The group's sensors, with zeros for sensors that the member lacks."""
        # Products instead of filling, since every inference engine supports them.
        nothing = observations[0].flatten(1)[:, :1] * 0.0
        padded = [
            observations[self._own[sensor]] if sensor in self._own else _zeros(nothing, shape)
            for sensor, shape in enumerate(self._shapes)
        ]
        own = len(self._own)
        padded += observations[own : own + self._added]
        if self._shows_index:
            padded.append(observations[-1] @ self.places if self._takes_index else nothing + self.places)
        return padded

    def _own_actions(self, parameters: ActionParameters) -> ActionParameters:
        logits = [parameters.logits[:, start : start + size] for start, size in self._choices]
        return ActionParameters(
            parameters.mean[:, : self._numbers],
            parameters.log_sigma[..., : self._numbers],
            torch.cat(logits, dim=-1) if logits else parameters.logits[:, :0],
        )


ExportedNetwork = PolicyNetwork | MemberPolicyNetwork
"""A policy for a model file."""

ExportModel = Callable[[ExportedNetwork, BehaviorSpec, Path], None]
"""Writes a policy with the spec of its inputs to a model file. Raises UserError if that fails."""


def models_of(
    network: PolicyNetwork, behavior: str, selector: ObservationSelector, hyper: Hyperparameters
) -> dict[str, tuple[ExportedNetwork, BehaviorSpec]]:
    """Returns the models of a policy and their input specs, by behavior: one, or one for each member of a group."""
    if not selector.spec.members:
        return {behavior: (network, selector.inputs)}
    members = [GroupMember(selector, number, hyper) for number in range(len(selector.spec.members))]
    return {each.member.behavior: (each.network(network), each.inputs) for each in members}


def _tells_agents_apart(member: MemberSpec, hyper: Hyperparameters) -> bool:
    """Whether the policy of a member distinguishes its agents."""
    shares = isinstance(hyper, GroupSettings) and hyper.sharing == "group" and not hyper.agent_ids
    return member.num_agents > 1 and hyper.needs_agent_index and (hyper.communicates or not shares)


def _zeros(nothing: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros, [B, *shape]. nothing: zeros, [B, 1]."""
    return (nothing @ nothing.new_zeros(1, int(np.prod(shape)))).reshape(-1, *shape)
