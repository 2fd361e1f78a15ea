"""Policy and critic of one behavior.

Modules call each other's ``forward``: no hooks are used, and for a small batch the detour through
``__call__`` costs as much as a layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.encoders.encoder import Trunk
from trainer_service.networks.encoders.layers import (
    in_chunks,
    observations_as_floats,
    rows_at_once,
    xavier_linear,
)
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.policies.action_heads import ActionHeads, ActionParameters
from unity_bridge.specs import BehaviorSpec


class ActorCritic(nn.Module):
    """An actor, and a critic with one value head per reward signal.

    With ``shared_critic`` the value heads sit on the actor's trunk. Where there is memory, each trunk has its own:
    what an agent remembers is the actor's part, then the critic's. Observations are one tensor [B, *shape] per
    sensor: floats, vectors normalized already, or uint8 for pictures whose bytes stand for byte/255.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, value_heads: int, shared_critic: bool
    ) -> None:
        """Raises ValueError where a sensor does not fit the networks that the settings ask for."""
        super().__init__()
        self.actor = Trunk(spec, settings)
        self.critic = None if shared_critic else Trunk(spec, settings, memory_start=self.actor.memory_size)
        self.memory_size = self.actor.memory_size + (self.critic.memory_size if self.critic else 0)
        self.policy_memory_size = self.actor.memory_size
        """Floats that an agent remembers from step to step, 0 without memory."""
        self.actions = ActionHeads(self.actor.output_size, spec.action_spec)
        self.value = xavier_linear(self.actor.output_size, value_heads)
        self.chunk = rows_at_once(self)

    def policy(self, observations: Sequence[Tensor], sequences: Sequences | None = None) -> ActionParameters:
        """The distribution of each agent's action. sequences: how rows follow each other, with memory."""
        features = self.actor.forward(observations_as_floats(observations))
        return self.actions.forward(self.actor.unroll(features, sequences))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[ActionParameters, Tensor]:
        """Returns the actions' parameters of one step with memory, and what each agent remembers afterwards.

        memories: [B, memory_size], or the actor's part alone where no values are asked for later.
        """
        observations = observations_as_floats(observations)
        features, next_memories = self.actor.step(observations, memories)
        if self.critic is not None and memories.shape[1] > self.actor.memory_size:
            next_memories = torch.cat([next_memories, self.critic.step(observations, memories)[1]], dim=1)
        return self.actions.forward(features), next_memories

    def value_trunk(self) -> Trunk:
        """The trunk that the value heads sit on."""
        return self.actor if self.critic is None else self.critic

    def values(self, observations: Sequence[Tensor]) -> Tensor:
        """One value per reward signal; without memory. Shape [B, value_heads]."""
        return self.value.forward(self.value_trunk().forward(observations_as_floats(observations)))

    def policy_and_values(
        self, observations: Sequence[Tensor], sequences: Sequences | None = None
    ) -> tuple[ActionParameters, Tensor]:
        """Returns both, with a shared trunk computed once. sequences: how rows follow each other, with memory."""
        observations = observations_as_floats(observations)
        features = critic_features = self.actor.unroll(self.actor.forward(observations), sequences)
        if self.critic is not None:
            critic_features = self.critic.unroll(self.critic.forward(observations), sequences)
        return self.actions.forward(features), self.value.forward(critic_features)


def batched_values(
    network: ActorCritic,
    observations: Sequence[Tensor],
    chunk: int | None = None,
    sequences: Sequences | None = None,
) -> Tensor:
    """Values of any number of observations, without gradients. Shape [N, value_heads].

    chunk: rows at once; by default as many as keep the widest layer within a few megabytes.
    sequences: how the rows follow each other, for networks with memory.
    """
    rows = len(observations[0])
    if chunk is None:
        chunk = network.chunk
    with torch.inference_mode():
        chunks = [[sensor[chunk] for sensor in observations] for chunk in in_chunks(rows, chunk)]
        if not chunks:
            return torch.empty((0, network.value.out_features))
        if sequences is None:
            return torch.cat([network.values(chunk) for chunk in chunks])
        trunk = network.value_trunk()
        features = torch.cat([trunk.forward(observations_as_floats(chunk)) for chunk in chunks])
        return network.value.forward(trunk.unroll(features, sequences))
