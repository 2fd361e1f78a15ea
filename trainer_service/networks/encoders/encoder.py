"""Encoder of all sensors, and the trunk of a network: encoder, body and memory, on which its heads sit.

Modules call each other's ``forward``: nothing hooks into them, and for a small batch the detour through
``__call__`` costs as much as a layer's arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.networks.encoders.entities import EntityAttention
from trainer_service.networks.encoders.goals import ConditionalBody
from trainer_service.networks.encoders.layers import (
    LinearBody,
    NormedBody,
    make_body,
    observations_as_floats,
)
from trainer_service.networks.encoders.memory import EncoderInput, Sequences, make_memory
from trainer_service.networks.encoders.own_encoder import OwnEncoder
from trainer_service.networks.encoders.pictures import picture_encoder
from trainer_service.networks.encoders.precision import chosen_precision, encode_pictures
from unity_bridge.specs import BehaviorSpec, ObservationSpec, ObservationType


class ObservationEncoder(nn.Module):
    """Vectors and encoded pictures side by side in sensor order, then features of all entities by attention.

    Sensors of any other shape are laid out flat, as if they were vectors. A plugin's encoder takes the place of all.
    """

    vector_sizes: tuple[int, ...]
    """Numbers of each sensor where all of them are vectors, so that nothing here is learned; else empty."""

    goal_columns: list[slice]
    """Columns of the goals among the features. Entities never count: no body is conditioned on them. None stand among
    those of a plugin's encoder."""

    def __init__(self, sensors: Sequence[ObservationSpec], settings: NetworkSettings) -> None:
        """Raises ValueError, naming the sensor, for pictures that are too small for their encoder."""
        super().__init__()
        if not sensors:
            raise ValueError("the behavior has no sensors: there is nothing to decide from")
        self.own: OwnEncoder | None = None
        if settings.encoder is not None:
            self.own = OwnEncoder(sensors, settings.encoder, settings.encoder_kwargs or {})
            self.output_size = self.own.output_size
            self.vector_sizes, self.goal_columns, self.goals_are_seen = (), [], True
            return
        self.sensors = nn.ModuleList(_sensor_module(sensor, settings) for sensor in sensors)
        self._pictures = [sensor.is_picture for sensor in sensors]
        self.precision = chosen_precision()
        """The precision in which pictures are encoded."""
        self._only_vectors = all(len(sensor.shape) == 1 for sensor in sensors)
        self.vector_sizes = tuple(sensor.size for sensor in sensors) if self._only_vectors else ()
        self._entities = [i for i, sensor in enumerate(sensors) if sensor.is_entities]
        self._others = [i for i, sensor in enumerate(sensors) if not sensor.is_entities]
        sizes = [settings.hidden_units if sensors[i].is_picture else sensors[i].size for i in self._others]
        context = sum(sizes)
        self.attention = (
            EntityAttention([sensors[i] for i in self._entities], context) if self._entities else None
        )
        self.output_size = context + (self.attention.output_size if self.attention else 0)
        self.goal_columns = [
            slice(end - size, end)
            for i, size, end in zip(self._others, sizes, itertools.accumulate(sizes), strict=True)
            if sensors[i].observation_type is ObservationType.GOAL_SIGNAL
        ]
        self.goals_are_seen = not any(
            sensor.is_picture and sensor.observation_type is ObservationType.GOAL_SIGNAL for sensor in sensors
        )
        """Whether they stand there as they were observed, none of them an encoded picture."""

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """One float tensor [B, *shape] per sensor to [B, output_size]."""
        if self.own is not None:
            return self.own.forward(observations)
        if self._only_vectors:
            return observations[0] if len(observations) == 1 else torch.cat(list(observations), dim=-1)
        encoded = [
            encode_pictures(module, sensor, self.precision) if is_picture else module(sensor)
            for module, sensor, is_picture in zip(self.sensors, observations, self._pictures, strict=True)
        ]
        parts = [encoded[i] for i in self._others]
        if self.attention is not None:
            context = torch.cat(parts, dim=-1) if parts else None
            parts.append(self.attention.forward([encoded[i] for i in self._entities], context))
        return torch.cat(parts, dim=-1)


class Flat(nn.Module):
    """Observations of any shape as vectors."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = self.widest = size

    def forward(self, observations: Tensor) -> Tensor:
        """Maps [B, …] to [B, size]."""
        return observations.reshape(-1, self.size)


def _sensor_module(sensor: ObservationSpec, settings: NetworkSettings) -> nn.Module:
    """The layers that a sensor's observations go through on their own."""
    if sensor.is_picture:
        return picture_encoder(sensor, settings.vis_encode_type, settings.hidden_units)
    return nn.Identity() if sensor.is_entities or len(sensor.shape) == 1 else Flat(sensor.size)


class Trunk(nn.Module):
    """Encoder, body and perhaps memory, one each of actor and critic, or a shared one."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, *, memory_start: int = 0) -> None:
        """memory_start: first column of this trunk's part in an agent's memory."""
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
        """Returns what ``forward`` gave in its order in time: [B, output_size]. Unchanged without memory."""
        if self.memory is None or sequences is None:
            return features
        return self.memory.unroll(features, sequences.memories[:, self._own], sequences.filled)

    def encode(self, inputs: EncoderInput) -> Tensor:
        """Returns the features of the steps that are asked about, [B, output_size], after those before them."""
        features = self.forward(observations_as_floats(inputs.observations))
        return inputs.select(self.unroll(features, inputs.sequences))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """One step of B agents with these memories: [B, output_size], and this trunk's next memories."""
        if self.memory is None:
            raise ValueError("there is no memory to step on")
        return self.memory.step(self.forward(observations), memories[:, self._own])


def body_for(
    encoder: ObservationEncoder, inputs: int, settings: NetworkSettings
) -> LinearBody | NormedBody | ConditionalBody:
    """The body on an encoder's features, and perhaps on more after them.

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
    if settings.activation != "swish":
        raise ValueError(
            f"network_settings.activation: {settings.activation} does not go with goals that generate weights; set "
            "goal_conditioning_type: none"
        )
    shape = (inputs, settings.hidden_units, settings.num_layers)
    return ConditionalBody(*shape, goal, seen=encoder.goals_are_seen)
