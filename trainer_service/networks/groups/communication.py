"""The base of networks of agents that communicate: they see the whole group, and decide for one agent of it."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.networks.groups.group_q_network import GroupQNetwork, require_vectors
from trainer_service.networks.groups.stacked import StackedLinear
from unity_bridge.specs import BehaviorSpec


class CommunicatingNetwork(GroupQNetwork):
    """A network Q_i(a) for each of n agents, from what all see. The choices of all branches lie side by side."""

    identities: Tensor
    """Agents' ids for a network that serves all of them, as one-hot. [1, n, n]"""

    def __init__(self, agent_spec: BehaviorSpec, num_agents: int, *, shared: bool, ids: bool) -> None:
        """agent_spec: what one agent sees; shared: one network for all; ids: whether that is given the agent's id.

        Raises ValueError where a sensor is no vector.
        """
        super().__init__(agent_spec.action_spec.discrete_branches)
        require_vectors("a group whose agents communicate", agent_spec.observation_specs)
        self._num_agents = num_agents
        self._observation_size = sum(sensor.size for sensor in agent_spec.observation_specs)
        self._ids = shared and ids
        self.register_buffer("identities", torch.eye(num_agents).unsqueeze(0), persistent=False)
        self.copies = 1 if shared else num_agents
        """Networks of each kind."""
        self.inputs = self._observation_size + (num_agents if self._ids else 0)
        self.choices = agent_spec.action_spec.mask_size

    @abstractmethod
    def _values(self, inputs: Tensor) -> Tensor:
        """Maps [B, n, inputs] to [B, n, choices]."""

    def group_q_values(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements GroupQNetwork."""
        seen = torch.cat(list(observations), dim=2)
        if self._ids:
            # Arithmetic where expanding would be clearer: old inference engines cannot.
            seen = torch.cat([seen, seen[:, :, :1] * 0.0 + self.identities], dim=2)
        return self._values(seen)

    def q_values(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements GreedyNetwork. Only the last two sensors count: what the group sees, [B, n·d], and the agent's id,
        as one-hot [B, n]."""
        group, ids = observations[-2], observations[-1]
        values = self.group_q_values([group.reshape(-1, self._num_agents, self._observation_size)])
        return (values * ids.unsqueeze(2)).sum(dim=1)


def layers_of(copies: int, sizes: Sequence[int]) -> nn.ModuleList:
    """One layer from each width to the next, of so many networks side by side."""
    return nn.ModuleList(StackedLinear(copies, before, after) for before, after in itertools.pairwise(sizes))


def each(layer: StackedLinear, features: Tensor) -> Tensor:
    """A layer of every agent's own, or one for all of them. [B, n, inputs] to [B, n, outputs]"""
    if layer.count > 1:
        return layer.forward(features)
    return features @ layer.weight.squeeze(0) + layer.bias
