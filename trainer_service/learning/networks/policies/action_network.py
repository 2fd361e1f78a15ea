"""The base of networks whose outputs are actions themselves: values or logits of choices, and continuous actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from trainer_service.learning.networks.policies.action_heads import ActionParameters


class ActionNetwork(nn.Module, ABC):
    """A network with one output for each continuous action and each choice, with or without memory."""

    def __init__(self, actions: Any, memory_size: int = 0) -> None:
        """actions: from outputs to actions, GreedyChoices or DirectActions.

        memory_size: floats of an agent's memory between decisions.
        """
        super().__init__()
        self.actions = actions
        self.memory_size = self.policy_memory_size = memory_size

    @abstractmethod
    def outputs(self, observations: Sequence[Tensor]) -> Tensor:
        """Maps normalized observations, one tensor [B, …] per sensor, to outputs. [B, C + K]"""

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """Returns the parameters of actions, for observations as in ``outputs``."""
        return self.parameters_of(self.outputs(observations))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the parameters of one step, and each agent's next memory. memories: [B, memory_size]."""
        outputs, next_memories = self.step_outputs(observations, memories)
        return self.parameters_of(outputs), next_memories

    def step_outputs(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """One step with memory, [B, memory_size]: returns outputs, [B, C + K], and the next memories."""
        raise ValueError("there is no memory to step on")

    def parameters_of(self, outputs: Tensor) -> ActionParameters:
        """Maps outputs [..., C + K] to the parameters of actions."""
        parameters: ActionParameters = self.actions.forward(outputs)
        return parameters
