"""The base of communicating agents' networks: from the group's observations to one agent's decision."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from trainer_service.config.hyperparameters.common import Sharing
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks, require_vectors
from trainer_service.learning.networks.groups.histories import GroupInput, StackedMemory
from trainer_service.learning.networks.groups.stacked import StackedLinear
from trainer_service.learning.networks.members import branches_of_agents
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.policies.q_network import GreedyChoices
from trainer_service.learning.networks.products import linear, stacked_linear
from unity_bridge.specs import BehaviorSpec


class CommunicatingNetwork(AgentNetworks):
    """A network Q_i(a) for each of n agents, from all observations. The choices of all branches are concatenated."""

    identities: Tensor
    """One-hot agent ids for a network that serves several agents. [1, n, n]"""

    num_branches: Tensor
    """Number of each agent's branches. [n, 1]"""

    def __init__(self, agent_spec: BehaviorSpec, num_agents: int, *, share: Sharing, ids: bool) -> None:
        """agent_spec: sensors and actions of one agent. ids: whether a network of several agents gets their ids.

        In a heterogeneous group all agents have padded sensors and actions, so that they can exchange features. Raises
        ValueError if a sensor is not a vector.
        """
        super().__init__(GreedyChoices(agent_spec.action_spec.discrete_branches), agent_spec)
        require_vectors("a group whose agents communicate", agent_spec.observation_specs)
        self._num_agents = num_agents
        self._observation_size = sum(sensor.size for sensor in agent_spec.observation_specs)
        self._ids = share != "none" and ids
        self.register_buffer("identities", torch.eye(num_agents).unsqueeze(0), persistent=False)
        branches = branches_of_agents(agent_spec)
        if branches is None:
            branches = torch.full((num_agents,), float(agent_spec.action_spec.discrete_size))
        self.register_buffer("num_branches", branches.unsqueeze(1), persistent=False)
        self.layer_of: tuple[int, ...] | None = None
        """The layer of each agent in layers per kind; None if each agent has its own, or all share one."""
        self.copies = num_agents if share == "none" else 1
        """Number of networks of each kind."""
        if share == "group" and agent_spec.members:
            self.layer_of, self.copies = agent_spec.agent_members, len(agent_spec.members)
        self.inputs = self._observation_size + (num_agents if self._ids else 0)
        self.mask_size = agent_spec.action_spec.mask_size

    def _make_memory(self, inputs: int, settings: NetworkSettings) -> int:
        """Makes the memory of agents' features. Returns its output size."""
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
        """Returns features of each agent's observations and messages. [B, n, inputs] to [B, n, features]"""

    @abstractmethod
    def _values(self, features: Tensor) -> Tensor:
        """Maps features, or memory outputs, to values. [B, n, features] to [B, n, choices]"""

    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Implements AgentNetworks."""
        features = self._group_features(seen.observations)
        if self.memory is not None:
            features = self.memory.remembered(features, seen)
        return self.own(self._values(features))

    def imitators(self) -> list[Imitator]:
        """Raises ValueError: demonstrations show single agents."""
        raise ValueError("an agent that hears the others cannot learn from what a single one saw")

    def each(self, layer: StackedLinear, features: Tensor) -> Tensor:
        """Applies each agent's own layer, or a shared one. [B, n, inputs] to [B, n, outputs]"""
        if self.layer_of is not None:
            layers = list(self.layer_of)
            return stacked_linear(
                features.transpose(0, 1), layer.weight[layers], layer.bias[layers]
            ).transpose(0, 1)
        if layer.count > 1:
            return layer.forward(features)
        return linear(features, layer.weight.squeeze(0).t(), layer.bias[0, 0])

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements ActionNetwork.

        Uses only the last two sensors: the group's observations, [B, n·d], and the agent's one-hot id, [B, n].
        """
        values = self.own(self._values(self._features_shown(observations)))
        return (values * observations[-1].unsqueeze(2)).sum(dim=1)

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements ActionNetwork."""
        if self.memory is None:
            return super().step_outputs(observations, memories)
        ids = observations[-1]
        own = (self._features_shown(observations) * ids.unsqueeze(2)).sum(dim=1)
        remembered, next_memories = self.memory.step(own, memories, ids)
        values = self.own(self._values(remembered.unsqueeze(1) * ids.unsqueeze(2)))
        return (values * ids.unsqueeze(2)).sum(dim=1), next_memories

    def _features_shown(self, observations: Sequence[Tensor]) -> Tensor:
        """Features of the group's observations, each agent's last sensor but one. [B, n, features]"""
        return self._group_features([observations[-2].reshape(-1, self._num_agents, self._observation_size)])

    def _group_features(self, observations: Sequence[Tensor]) -> Tensor:
        inputs = torch.cat(list(observations), dim=2)
        if self._ids:
            # Arithmetic instead of expanding, since old inference engines cannot expand.
            inputs = torch.cat([inputs, inputs[:, :, :1] * 0.0 + self.identities], dim=2)
        return self._features(inputs)
