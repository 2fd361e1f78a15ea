"""Networks of action values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import kaiming_linear, observations_as_floats
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.action_network import ActionNetwork
from trainer_service.ops.q_learning import dueling, masked_argmax
from unity_bridge.specs import BehaviorSpec


class GreedyChoices:
    """Action heads of a network whose logits are action values. Nothing is sampled."""

    def __init__(self, branches: Sequence[int]) -> None:
        self.branches = tuple(branches)
        self.size = sum(branches)

    def forward(self, q: Tensor) -> ActionParameters:
        """Returns values as logits. [..., K]"""
        return ActionParameters(q[..., :0], q.new_empty(0), q)

    def most_likely(
        self, parameters: ActionParameters, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns no continuous actions [B, 0], the best allowed choices int64 [B, branches], and ln 1 per row [B]."""
        chosen = masked_argmax(parameters.logits, allowed, self.branches)
        return parameters.mean, chosen, parameters.logits.new_zeros(len(chosen))

    def sample(
        self, parameters: ActionParameters, allowed: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the best allowed choices too. Nothing is sampled."""
        return self.most_likely(parameters, allowed)


class QNetwork(ActionNetwork):
    """The value of every choice of one agent, for any kinds of sensors."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, *, dueling: bool) -> None:
        """dueling: whether a state's value and its actions' advantages have separate heads.

        Raises ValueError if the networks of the settings do not support a sensor.
        """
        super().__init__(GreedyChoices(spec.action_spec.discrete_branches))
        self.trunk = Trunk(spec, settings)
        self.memory_size = self.policy_memory_size = self.trunk.memory_size
        features, mask_size = self.trunk.output_size, spec.action_spec.mask_size
        # Near zero, so that initially no choice is better than another.
        self.q = kaiming_linear(features, mask_size, gain=0.1)
        self.value = kaiming_linear(features, 1, gain=0.1) if dueling else None

    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Implements ActionNetwork; without memory."""
        return self.encoded_q_values(EncoderInput(observations))

    def encoded_q_values(self, inputs: EncoderInput) -> Tensor:
        """Returns the value of every choice at the selected steps. [B, K]"""
        return self._values(self.trunk.encode(inputs))

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """Implements ActionNetwork."""
        features, next_memories = self.trunk.step(observations_as_floats(observations), memories)
        return self._values(features), next_memories

    def decide(self, features: Tensor) -> ActionParameters:
        """Returns values as logits, from the trunk's features."""
        return self.parameters_of(self._values(features))

    def _values(self, features: Tensor) -> Tensor:
        q = self.q.forward(features)
        if self.value is None:
            return q
        return dueling(self.value.forward(features), q, self.actions.branches)
