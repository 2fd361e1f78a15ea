"""The base of networks of agents that communicate: from the whole group's observations to one agent's decision."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.networks.groups.group_q_network import GroupQNetwork, require_vectors
from trainer_service.networks.groups.histories import Histories, StackedMemory
from trainer_service.networks.groups.stacked import StackedLinear
from trainer_service.networks.members import branches_of_agents, discrete_of_agents
from trainer_service.networks.products import linear, stacked_linear
from unity_bridge.specs import BehaviorSpec


class CommunicatingNetwork(GroupQNetwork):
    """A network Q_i(a) for each of n agents, from all observations. The choices of all branches lie side by side."""

    identities: Tensor
    """Agents' ids for a network that serves several of them, as one-hot. [1, n, n]"""

    has_discrete: Tensor | None
    """1 where the agent of an index has a choice. [n, choices]; None where everyone has all."""

    num_branches: Tensor
    """Branches that each agent has. [n, 1]"""

    def __init__(self, agent_spec: BehaviorSpec, num_agents: int, *, share: Sharing, ids: bool) -> None:
        """agent_spec: what one agent sees; ids: whether a network that serves several agents is given their ids.

        In a heterogeneous group all see and decide what is padded, so that they may exchange it. Raises
        ValueError where a sensor is no vector.
        """
        super().__init__(agent_spec.action_spec.discrete_branches)
        require_vectors("a group whose agents communicate", agent_spec.observation_specs)
        self._num_agents = num_agents
        self._observation_size = sum(sensor.size for sensor in agent_spec.observation_specs)
        self._ids = share != "none" and ids
        self.register_buffer("identities", torch.eye(num_agents).unsqueeze(0), persistent=False)
        self.register_buffer("has_discrete", discrete_of_agents(agent_spec), persistent=False)
        branches = branches_of_agents(agent_spec)
        if branches is None:
            branches = torch.full((num_agents,), float(agent_spec.action_spec.discrete_size))
        self.register_buffer("num_branches", branches.unsqueeze(1), persistent=False)
        self.layer_of: tuple[int, ...] | None = None
        """The layer of each agent, of those of a kind; None where each has its own, or all have one."""
        self.copies = num_agents if share == "none" else 1
        """Networks of each kind."""
        if share == "group" and agent_spec.members:
            self.layer_of, self.copies = agent_spec.agent_members, len(agent_spec.members)
        self.inputs = self._observation_size + (num_agents if self._ids else 0)
        self.mask_size = agent_spec.action_spec.mask_size

    def _make_memory(self, inputs: int, settings: NetworkSettings) -> int:
        """Builds the memory of agents' features. Returns the width of its outputs."""
        self.memory = (
            None
            if settings.memory is None
            else StackedMemory(self.copies, inputs, settings.memory, self.layer_of)
        )
        if self.memory is None:
            return inputs
        self.memory_size = self.policy_memory_size = self.memory.size
        return self.memory.output_size

    @abstractmethod
    def _features(self, inputs: Tensor) -> Tensor:
        """Features of each agent's observations and messages. [B, n, inputs] to [B, n, features]"""

    @abstractmethod
    def _values(self, features: Tensor) -> Tensor:
        """Maps features, or what is remembered of them, to values. [B, n, features] to [B, n, choices]"""

    def group_q_values(self, observations: Sequence[Tensor], histories: Histories | None = None) -> Tensor:
        """Implements GroupQNetwork."""
        features = self._group_features(observations)
        if self.memory is not None and histories is not None:
            features = self.memory.unroll(histories.places(features), histories)[histories.selected]
        return self._own_values(features)

    def each(self, layer: StackedLinear, features: Tensor) -> Tensor:
        """A layer of every agent's own, or one for several of them. [B, n, inputs] to [B, n, outputs]"""
        if self.layer_of is not None:
            layers = list(self.layer_of)
            return stacked_linear(
                features.transpose(0, 1), layer.weight[layers], layer.bias[layers]
            ).transpose(0, 1)
        if layer.count > 1:
            return layer.forward(features)
        return linear(features, layer.weight.squeeze(0).t(), layer.bias[0, 0])

    def q_values(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements GreedyNetwork. Only the last two sensors count: what the group sees, [B, n·d], and the agent's id,
        as one-hot [B, n]."""
        values = self._own_values(self._features_shown(observations))
        return (values * observations[-1].unsqueeze(2)).sum(dim=1)

    def step_q_values(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements GreedyNetwork."""
        if self.memory is None:
            return super().step_q_values(observations, memories)
        ids = observations[-1]
        own = (self._features_shown(observations) * ids.unsqueeze(2)).sum(dim=1)
        remembered, next_memories = self.memory.step(own, memories, ids)
        values = self._own_values(remembered.unsqueeze(1) * ids.unsqueeze(2))
        return (values * ids.unsqueeze(2)).sum(dim=1), next_memories

    def _own_values(self, features: Tensor) -> Tensor:
        """Values of choices, 0 for those that an agent lacks. [B, n, features] to [B, n, choices]"""
        values = self._values(features)
        return values if self.has_discrete is None else values * self.has_discrete

    def _features_shown(self, observations: Sequence[Tensor]) -> Tensor:
        """Features of the group's observations, which are the last sensor but one of each agent. [B, n, features]"""
        return self._group_features([observations[-2].reshape(-1, self._num_agents, self._observation_size)])

    def _group_features(self, observations: Sequence[Tensor]) -> Tensor:
        inputs = torch.cat(list(observations), dim=2)
        if self._ids:
            # Arithmetic where expanding would be clearer: old inference engines cannot.
            inputs = torch.cat([inputs, inputs[:, :, :1] * 0.0 + self.identities], dim=2)
        return self._features(inputs)


def layers_of(copies: int, sizes: Sequence[int]) -> nn.ModuleList:
    """One layer from each width to the next, of so many networks side by side."""
    return nn.ModuleList(StackedLinear(copies, before, after) for before, after in itertools.pairwise(sizes))
