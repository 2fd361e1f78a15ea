"""Policy and critic of one behavior.

Modules call each other's ``forward``: nobody hooks into them, and for a small batch the detour through
``__call__`` costs as much as a layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.networks.actions import ActionHeads, ActionParameters
from trainer_service.networks.encoder import ObservationEncoder
from trainer_service.networks.layers import LinearBody, xavier_linear
from unity_bridge.specs import BehaviorSpec


class Trunk(nn.Module):
    """Encoder and body: what actor and critic each have, or share."""

    def __init__(self, spec: BehaviorSpec, *, hidden_units: int, num_layers: int) -> None:
        super().__init__()
        self.encoder = ObservationEncoder(spec.observation_specs)
        self.body = LinearBody(self.encoder.output_size, hidden_units, num_layers)
        self.output_size = self.body.output_size

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Normalized observations, one [B, …] per sensor, to [B, hidden_units]."""
        return self.body.forward(self.encoder.forward(observations))


class ActorCritic(nn.Module):
    """An actor, and a critic with one value head per reward signal.

    With ``shared_critic`` the value heads sit on the actor's trunk.
    """

    def __init__(
        self, spec: BehaviorSpec, *, hidden_units: int, num_layers: int, value_heads: int, shared_critic: bool
    ) -> None:
        super().__init__()
        self.actor = Trunk(spec, hidden_units=hidden_units, num_layers=num_layers)
        self.critic = None if shared_critic else Trunk(spec, hidden_units=hidden_units, num_layers=num_layers)
        self.actions = ActionHeads(self.actor.output_size, spec.action_spec)
        self.value = xavier_linear(self.actor.output_size, value_heads)

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """observations: normalized, one [B, …] per sensor."""
        return self.actions.forward(self.actor.forward(observations))

    def values(self, observations: Sequence[Tensor]) -> Tensor:
        """One value per reward signal. Shape [B, value_heads]."""
        trunk = self.actor if self.critic is None else self.critic
        return self.value.forward(trunk.forward(observations))

    def policy_and_values(self, observations: Sequence[Tensor]) -> tuple[ActionParameters, Tensor]:
        """Both, with a shared trunk computed once."""
        features = self.actor.forward(observations)
        critic_features = features if self.critic is None else self.critic.forward(observations)
        return self.actions.forward(features), self.value.forward(critic_features)


def in_chunks(rows: int, size: int) -> list[slice]:
    """Slices that cover ``rows`` in pieces of at most ``size``: a large batch that stays in the cache."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def batched_values(network: ActorCritic, observations: Sequence[Tensor], chunk: int = 4096) -> Tensor:
    """Values of any number of observations, without gradients. Shape [N, value_heads]."""
    rows = len(observations[0])
    with torch.inference_mode():
        parts = [
            network.values([sensor[piece] for sensor in observations]) for piece in in_chunks(rows, chunk)
        ]
        return torch.cat(parts) if parts else torch.empty((0, network.value.out_features))
