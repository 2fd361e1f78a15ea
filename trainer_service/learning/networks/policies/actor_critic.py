"""Policy and critic of one behavior.

Modules call each other's ``forward``: they have no hooks, and for a small batch ``__call__`` costs as much as a
layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from trainer_service.learning.networks.encoders.layers import (
    in_chunks,
    observations_as_floats,
    rows_at_once,
    xavier_linear,
)
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.policies.action_heads import ActionHeads, ActionParameters
from unity_bridge.specs import BehaviorSpec


class ActorCritic(nn.Module):
    """An actor, and a critic with one value head per reward signal.

    With ``shared_critic``, the value heads use the actor's trunk. With memory, each trunk has its own memory: an
    agent's memory is the actor's part, then the critic's. Observations are one tensor [B, *shape] per sensor: floats,
    with vectors normalized, or uint8 for pictures in bytes, which stand for byte/255.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, value_heads: int, shared_critic: bool
    ) -> None:
        """Raises ValueError if the networks of the settings do not support a sensor."""
        super().__init__()
        self.actor = Trunk(spec, settings)
        self.critic = None if shared_critic else Trunk(spec, settings, memory_start=self.actor.memory_size)
        self.memory_size = self.actor.memory_size + (self.critic.memory_size if self.critic else 0)
        self.policy_memory_size = self.actor.memory_size
        """Floats of an agent's memory in the policy; 0 without memory."""
        self.actions = ActionHeads(self.actor.output_size, spec.action_spec)
        self.value = xavier_linear(self.actor.output_size, value_heads)
        self.chunk = rows_at_once(self)

    def policy(self, observations: Sequence[Tensor], sequences: Sequences | None = None) -> ActionParameters:
        """Returns the distribution of each agent's action. sequences: the rows' order in time, with memory."""
        features = self.actor.forward(observations_as_floats(observations))
        return self.actions.forward(self.actor.unroll(features, sequences))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the actions' parameters of one step with memory, and each agent's next memory.

        memories: [B, memory_size], or the actor's part only, if no values are needed later.
        """
        observations = observations_as_floats(observations)
        features, next_memories = self.actor.step(observations, memories)
        if self.critic is not None and memories.shape[1] > self.actor.memory_size:
            next_memories = torch.cat([next_memories, self.critic.step(observations, memories)[1]], dim=1)
        return self.actions.forward(features), next_memories

    @torch.inference_mode()
    def values(
        self, observations: Sequence[Tensor], sequences: Sequences | None = None, *, chunk: int | None = None
    ) -> Tensor:
        """Returns values of any number of observations, without gradients. Shape [N, value_heads].

        sequences: the rows' order in time, with memory. chunk: rows at once; by default, the widest layer fits into a
        few megabytes.
        """
        trunk, values = self.critic or self.actor, []
        for rows in in_chunks(len(observations[0]), chunk or self.chunk):
            features = trunk.forward(observations_as_floats([sensor[rows] for sensor in observations]))
            values.append(self.value.forward(features) if sequences is None else features)
        if not values:
            return torch.empty((0, self.value.out_features))
        if sequences is None:
            return torch.cat(values)
        return self.value.forward(trunk.unroll(torch.cat(values), sequences))

    def policy_and_values(
        self, observations: Sequence[Tensor], sequences: Sequences | None = None
    ) -> tuple[ActionParameters, Tensor]:
        """Returns both, and computes a shared trunk once. sequences: the rows' order in time, with memory."""
        observations = observations_as_floats(observations)
        features = critic_features = self.actor.unroll(self.actor.forward(observations), sequences)
        if self.critic is not None:
            critic_features = self.critic.unroll(self.critic.forward(observations), sequences)
        return self.actions.forward(features), self.value.forward(critic_features)
