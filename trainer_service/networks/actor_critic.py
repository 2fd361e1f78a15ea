"""Policy and critic of one behavior.

Modules call each other's ``forward``: nobody hooks into them, and for a small batch the detour through
``__call__`` costs as much as a layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.actions import ActionHeads, ActionParameters
from trainer_service.networks.encoder import ObservationEncoder
from trainer_service.networks.goals import ConditionalBody
from trainer_service.networks.layers import LinearBody, xavier_linear
from unity_bridge.specs import BehaviorSpec

_MOST_ROWS = 4096
_MOST_FLOATS = 1 << 20


class Trunk(nn.Module):
    """Encoder and body: what actor and critic each have, or share."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings) -> None:
        super().__init__()
        self.encoder = ObservationEncoder(spec.observation_specs, settings)
        goal = self.encoder.goal_columns if settings.goal_conditioning_type == "hyper" else []
        shape = (self.encoder.output_size, settings.hidden_units, settings.num_layers)
        self.body = (
            ConditionalBody(*shape, goal, seen=self.encoder.goals_are_seen) if goal else LinearBody(*shape)
        )
        self.output_size = settings.hidden_units

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Normalized observations, one float tensor [B, …] per sensor, to [B, hidden_units]."""
        return self.body.forward(self.encoder.forward(observations))


class ActorCritic(nn.Module):
    """An actor, and a critic with one value head per reward signal.

    With ``shared_critic`` the value heads sit on the actor's trunk. Observations are one tensor [B, *shape] per
    sensor: floats, vectors normalized already, or uint8 for pictures whose bytes stand for byte/255.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, value_heads: int, shared_critic: bool
    ) -> None:
        """Raises ValueError where a sensor does not fit the networks that the settings ask for."""
        super().__init__()
        self.actor = Trunk(spec, settings)
        self.critic = None if shared_critic else Trunk(spec, settings)
        self.actions = ActionHeads(self.actor.output_size, spec.action_spec)
        self.value = xavier_linear(self.actor.output_size, value_heads)
        self.widest = max(getattr(module, "widest", 1) for module in self.modules())
        """Floats that one agent takes where its observation is spread out most."""

    def policy(self, observations: Sequence[Tensor]) -> ActionParameters:
        """The distribution of each agent's action."""
        return self.actions.forward(self.actor.forward(as_floats(observations)))

    def values(self, observations: Sequence[Tensor]) -> Tensor:
        """One value per reward signal. Shape [B, value_heads]."""
        trunk = self.actor if self.critic is None else self.critic
        return self.value.forward(trunk.forward(as_floats(observations)))

    def policy_and_values(self, observations: Sequence[Tensor]) -> tuple[ActionParameters, Tensor]:
        """Both, with a shared trunk computed once."""
        observations = as_floats(observations)
        features = self.actor.forward(observations)
        critic_features = features if self.critic is None else self.critic.forward(observations)
        return self.actions.forward(features), self.value.forward(critic_features)


def as_floats(observations: Sequence[Tensor]) -> list[Tensor]:
    """What observations stand for: bytes as byte/255, floats as they are."""
    return [sensor / 255 if sensor.dtype == torch.uint8 else sensor for sensor in observations]


def in_chunks(rows: int, size: int) -> list[slice]:
    """Slices that cover ``rows`` in pieces of at most ``size``: a large batch that stays in the cache."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def batched_values(network: ActorCritic, observations: Sequence[Tensor], chunk: int | None = None) -> Tensor:
    """Values of any number of observations, without gradients. Shape [N, value_heads].

    chunk: rows at once; by default as many as keep the widest layer within a few megabytes.
    """
    rows = len(observations[0])
    if chunk is None:
        chunk = min(_MOST_ROWS, max(1, _MOST_FLOATS // network.widest))
    with torch.inference_mode():
        parts = [
            network.values([sensor[piece] for sensor in observations]) for piece in in_chunks(rows, chunk)
        ]
        return torch.cat(parts) if parts else torch.empty((0, network.value.out_features))
