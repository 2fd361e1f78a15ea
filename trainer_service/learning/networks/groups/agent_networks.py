"""Networks of the agents of a group. M single agents, B groups of n agents, C continuous actions and K choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.members import actions_of_agents
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.action_network import ActionNetwork
from trainer_service.learning.networks.policies.imitator import Imitator
from unity_bridge.specs import BehaviorSpec, ObservationSpec


class AgentNetworks(ActionNetwork):
    """Networks that act for single agents, and are evaluated for whole groups."""

    has_output: Tensor | None
    """1 if the agent of an index has a continuous action or choice. [n, C + K]; None if all agents have all of them."""

    def __init__(self, actions: Any, agent_spec: BehaviorSpec) -> None:
        """actions: see ActionNetwork. agent_spec: an agent's own sensors and actions."""
        super().__init__(actions)
        self.register_buffer("has_output", actions_of_agents(agent_spec), persistent=False)

    @abstractmethod
    def group_outputs(self, seen: GroupInput) -> Tensor:
        """Returns the outputs of all agents of B groups. [B, n, C + K]

        With memory, given all earlier observations. Raises ValueError with memory but without histories.
        """

    def group_policy(self, seen: GroupInput) -> ActionParameters:
        """Returns the parameters of whole groups' actions, [B, n, …]."""
        return self.parameters_of(self.group_outputs(seen))

    @abstractmethod
    def imitators(self) -> list[Imitator]:
        """Returns the networks, for learning from single agents' demonstrations. Raises ValueError if they cannot."""

    def own(self, outputs: Tensor, ids: Tensor | None = None) -> Tensor:
        """Replaces outputs for actions that an agent lacks by 0. ids: one-hot, of single agents; None for groups."""
        if self.has_output is None:
            return outputs
        return outputs * (self.has_output if ids is None else ids @ self.has_output)


def require_vectors(why: str, sensors: Sequence[ObservationSpec]) -> None:
    """Raises ValueError for a sensor that is not a vector."""
    for sensor in sensors:
        if len(sensor.shape) != 1:
            raise ValueError(
                f"{why} needs sensors that are vectors; '{sensor.name}' has shape {sensor.shape}"
            )
