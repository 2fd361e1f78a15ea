"""Values from messages: every agent reads its own and all others', and a linear layer makes values of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from trainer_service.config.hyperparameters.off_policy import SICSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.networks.groups.communication import CommunicatingNetwork, each, layers_of
from trainer_service.networks.groups.stacked import StackedLinear
from trainer_service.ops.communication import own_first
from unity_bridge.specs import BehaviorSpec


class MessageNetwork(CommunicatingNetwork):
    """Q_i = U_i [m_i, m_j for the others by index] with messages m_i = tanh(W_i x_i), x_i a body's output for o_i."""

    reading: Tensor
    """Picks what each agent reads, one message after the other: a row has a 1 for one of them. [n·n, n]"""

    def __init__(
        self, own: BehaviorSpec, settings: NetworkSettings, hyper: SICSettings, num_agents: int
    ) -> None:
        """own: what one agent sees. With ``num_layers: 0`` there is no body: a message is made of o_i itself.

        Raises ValueError where a sensor is no vector.
        """
        super().__init__(own, num_agents, shared=hyper.share == "full", ids=hyper.agent_ids)
        sizes = [self.inputs, *[settings.hidden_units] * settings.num_layers]
        self.body = layers_of(self.copies, sizes)
        self.messages = StackedLinear(self.copies, sizes[-1], hyper.message_units)
        self._heard = num_agents * hyper.message_units
        self.readout = StackedLinear(self.copies, self._heard, self.choices)
        nn.init.zeros_(self.readout.weight)
        reading = torch.eye(num_agents)[own_first(num_agents).flatten()]
        self.register_buffer("reading", reading, persistent=False)

    def _values(self, inputs: Tensor) -> Tensor:
        """[B, n, inputs] to [B, n, choices]."""
        features = inputs
        for layer in cast(Iterable[StackedLinear], self.body):
            features = torch.relu(each(layer, features))
        messages = torch.tanh(each(self.messages, features))
        # A product, for inference engines that cannot gather; times 0 and 1 nothing is lost.
        heard = self.reading @ messages
        return each(self.readout, heard.reshape(-1, self._num_agents, self._heard))
