"""Values from messages: a linear layer on an agent's own message and the messages of all other agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.off_policy import SICSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.groups.communication import CommunicatingNetwork
from trainer_service.learning.networks.groups.stacked import StackedLinear, layers_of
from trainer_service.ops.communication import own_first
from unity_bridge.specs import BehaviorSpec


class MessageNetwork(CommunicatingNetwork):
    """A network Q_i = U_i [m_i, m_j for the others by index], m_i = tanh(W_i x_i), x_i a body's output for o_i.

    With memory, U_i reads agent i's memory of all messages that it received. A message depends on the present
    observation only.
    """

    reading_order: Tensor
    """Selects the messages of each agent in its reading order. Each row has a single 1. [n·n, n]"""

    def __init__(
        self, agent_spec: BehaviorSpec, settings: NetworkSettings, hyper: SICSettings, num_agents: int
    ) -> None:
        """agent_spec: sensors and actions of one agent. With ``num_layers: 0``, messages are computed from o_i itself.

        Raises ValueError if a sensor is not a vector.
        """
        super().__init__(agent_spec, num_agents, share=hyper.sharing, ids=hyper.agent_ids)
        sizes = [self.inputs, *[settings.hidden_units] * settings.num_layers]
        self.body = layers_of(self.copies, sizes)
        self.messages = StackedLinear(self.copies, sizes[-1], hyper.message_units)
        self._received_size = num_agents * hyper.message_units
        features = self._make_memory(self._received_size, settings)
        self.readout = StackedLinear(self.copies, features, self.mask_size)
        nn.init.zeros_(self.readout.weight)
        reading_order = torch.eye(num_agents)[own_first(num_agents).flatten()]
        self.register_buffer("reading_order", reading_order, persistent=False)

    def _features(self, inputs: Tensor) -> Tensor:
        """All messages, in each agent's reading order. [B, n, inputs] to [B, n, n · message_units]"""
        features = inputs
        for layer in cast(Iterable[StackedLinear], self.body):
            features = torch.relu(self.each(layer, features))
        messages = torch.tanh(self.each(self.messages, features))
        # A product, since inference engines may not support gather. Factors 0 and 1 lose no precision.
        received = self.reading_order @ messages
        return received.reshape(-1, self._num_agents, self._received_size)

    def _values(self, features: Tensor) -> Tensor:
        """Maps [B, n, features] to [B, n, choices]."""
        return self.each(self.readout, features)
