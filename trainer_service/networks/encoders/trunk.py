"""Encoder, body and memory in one: from a list of sensors to the features that heads sit on.

Modules call each other's ``forward``: nobody hooks into them, and for a small batch the detour through
``__call__`` costs as much as a layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.encoders.encoder import ObservationEncoder
from trainer_service.networks.encoders.goals import ConditionalBody
from trainer_service.networks.encoders.layers import LinearBody, NormedBody, make_body
from trainer_service.networks.encoders.memory import Sequences, make_memory
from unity_bridge.specs import BehaviorSpec


class Trunk(nn.Module):
    """Encoder, body and perhaps memory: what actor and critic each have, or share."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, *, memory_start: int = 0) -> None:
        """memory_start: column of all that an agent remembers where this trunk's part begins."""
        super().__init__()
        self.encoder = ObservationEncoder(spec.observation_specs, settings)
        self.body = body_for(self.encoder, self.encoder.output_size, settings)
        self.memory = None if settings.memory is None else make_memory(settings.hidden_units, settings.memory)
        self.memory_size = 0 if self.memory is None else self.memory.size
        self.output_size = settings.hidden_units if self.memory is None else self.memory.output_size
        self._own = slice(memory_start, memory_start + self.memory_size)

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Normalized observations, one float tensor [B, …] per sensor, to [B, hidden_units]; without memory."""
        return self.body.forward(self.encoder.forward(observations))

    def unroll(self, features: Tensor, sequences: Sequences | None) -> Tensor:
        """What ``forward`` gave, seen in its order in time: [B, output_size]. The same where there is no memory."""
        if self.memory is None or sequences is None:
            return features
        return self.memory.unroll(features, sequences.memories[:, self._own], sequences.filled)

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """One step of B agents that remember all of ``memories``: [B, output_size], and what this trunk keeps."""
        if self.memory is None:
            raise ValueError("there is no memory to step on")
        return self.memory.step(self.forward(observations), memories[:, self._own])


def body_for(
    encoder: ObservationEncoder, inputs: int, settings: NetworkSettings
) -> LinearBody | NormedBody | ConditionalBody:
    """The body for what an encoder gives, and perhaps for more after it.

    Raises ValueError for settings that ask for two kinds of body at once.
    """
    goal = encoder.goal_columns if settings.goal_conditioning_type == "hyper" else []
    if not goal:
        return make_body(inputs, settings)
    if settings.layer_norm:
        raise ValueError(
            "network_settings.layer_norm: true does not go with goals that generate weights; set "
            "goal_conditioning_type: none"
        )
    shape = (inputs, settings.hidden_units, settings.num_layers)
    return ConditionalBody(*shape, goal, seen=encoder.goals_are_seen)
