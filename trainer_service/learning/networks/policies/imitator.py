"""Actors that learn from demonstrations: an encoder, a memory and action heads of the acting network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import observations_as_floats
from trainer_service.learning.networks.encoders.memory import Memory
from trainer_service.learning.networks.policies.action_heads import ActionParameters


@dataclass(frozen=True, slots=True, eq=False)
class Imitator:
    """One actor, from observations to actions; its parts are those of the acting network."""

    encode: Callable[[Sequence[Tensor]], Tensor]
    """Maps normalized observations, one tensor [B, *sensor shape] per sensor, to features [B, F]."""

    memory: Memory | None
    """The memory after the encoder; None without memory."""

    decide: Callable[[Tensor], ActionParameters]
    """Maps features, or memory outputs, to the parameters of B agents' actions."""

    @classmethod
    def of_trunk(cls, trunk: Trunk, decide: Callable[[Tensor], ActionParameters]) -> Imitator:
        """The actor with this trunk."""
        return cls(
            lambda observations: trunk.forward(observations_as_floats(observations)), trunk.memory, decide
        )

    def shown(self, agent_id: int, num_agents: int) -> Imitator:
        """Returns the actor of one agent of a group, with the agent's id as an additional input."""

        def encode(observations: Sequence[Tensor]) -> Tensor:
            ids = torch.zeros((len(observations[0]), num_agents), device=observations[0].device)
            ids[:, agent_id] = 1.0
            return self.encode([*observations, ids])

        return replace(self, encode=encode)

    def of_each(self, num_agents: int) -> list[Imitator]:
        """Returns the actor of each agent of a group, with ids; the actor itself without ids (0)."""
        return [self.shown(agent, num_agents) for agent in range(num_agents)] or [self]
