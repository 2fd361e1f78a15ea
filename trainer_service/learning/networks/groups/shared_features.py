"""Values from shared features: every agent averages its features with the next agent's, in a ring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.off_policy import ShareSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.communication import CommunicatingNetwork
from trainer_service.learning.networks.groups.stacked import StackedLinear, layers_of
from trainer_service.ops.communication import ring_mixing
from unity_bridge.specs import BehaviorSpec


class SharedFeaturesNetwork(CommunicatingNetwork):
    """A network Q_i(a) = V_i(g_i) + tanh(W_i [h_i, g_i])_a of features h_i = encoder_i(o_i), mixed in a ring: g = M h.

    The part that depends on the action is in (−1, 1), so two actions' values never differ by 2 or more. With several
    branches, each has such a part, and the value is divided among them. With memory, both parts depend on agent i's
    memory of [h_i, g_i]. The shared features depend on the present observation only.
    """

    mixing: Tensor
    """M. [n, n]"""

    def __init__(
        self, agent_spec: BehaviorSpec, settings: NetworkSettings, hyper: ShareSettings, num_agents: int
    ) -> None:
        """agent_spec: sensors and actions of one agent. Raises ValueError if a sensor is not a vector."""
        super().__init__(agent_spec, num_agents, share=hyper.sharing, ids=hyper.agent_ids)
        width, copies = hyper.thought_units, self.copies
        hidden = [settings.hidden_units] * max(settings.num_layers, 1)
        self.encoder = layers_of(copies, [self.inputs, *hidden, width])
        self._width = width
        features = self._make_memory(2 * width, settings)
        self.critic = StackedLinear(copies, width if self.memory is None else features, 1)
        nn.init.zeros_(self.critic.weight)
        self.advantage = StackedLinear(copies, features, self.mask_size)
        in_turn = hyper.mix == "ring_sequential"
        mixing = ring_mixing(num_agents, hyper.share_iterations, in_turn=in_turn)
        self.register_buffer("mixing", mixing, persistent=False)

    def _features(self, inputs: Tensor) -> Tensor:
        """Each agent's own and mixed features. [B, n, inputs] to [B, n, 2 · thought_units]"""
        features = inputs
        for layer in cast(Iterable[StackedLinear], self.encoder):
            features = torch.relu(self.each(layer, features))
        return torch.cat([features, self.mixing @ features], dim=2)

    def _values(self, features: Tensor) -> Tensor:
        """Maps [B, n, features] to [B, n, choices]."""
        value = self.each(self.critic, features[:, :, self._width :] if self.memory is None else features)
        advantage = torch.tanh(self.each(self.advantage, features))
        return value / self.num_branches + advantage
