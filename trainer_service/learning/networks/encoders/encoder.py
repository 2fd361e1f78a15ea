"""Encoder of all sensors, and the trunk of a network: encoder, body and memory, before its heads.

Modules call each other's ``forward``: they have no hooks, and for a small batch ``__call__`` costs as much as a
layer's arithmetic.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.entities import EntityAttention
from trainer_service.learning.networks.encoders.goals import ConditionalBody
from trainer_service.learning.networks.encoders.layers import (
    LinearBody,
    NormedBody,
    make_body,
    observations_as_floats,
)
from trainer_service.learning.networks.encoders.memory import EncoderInput, Sequences, make_memory
from trainer_service.learning.networks.encoders.own_encoder import OwnEncoder
from trainer_service.learning.networks.encoders.pictures import picture_encoder
from trainer_service.learning.networks.encoders.precision import chosen_precision, encode_pictures
from unity_bridge.specs import BehaviorSpec, ObservationSpec, ObservationType


class ObservationEncoder(nn.Module):
    """Concatenates vectors and encoded pictures in sensor order, then attention features of all entities.

    Sensors of other shapes are flattened to vectors. A plugin's encoder replaces all of it.
    """

    vector_sizes: tuple[int, ...]
    """Size of each sensor if all are vectors, so that the encoder has no parameters; otherwise empty."""

    goal_columns: list[slice]
    """Columns of the goals in the features. Entities are never goals, since no body is conditioned on them. Empty with
    a plugin's encoder."""

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
        """The precision of picture encoding."""
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
        """Whether the features contain the goals unchanged, none of them an encoded picture."""

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Maps one float tensor [B, *shape] per sensor to [B, output_size]."""
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
    """Flattens observations of any shape to vectors."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = self.widest = size

    def forward(self, observations: Tensor) -> Tensor:
        """Maps [B, …] to [B, size]."""
        return observations.reshape(-1, self.size)


def _sensor_module(sensor: ObservationSpec, settings: NetworkSettings) -> nn.Module:
    """Returns the layers of a single sensor's observations."""
    if sensor.is_picture:
        return picture_encoder(sensor, settings.vis_encode_type, settings.hidden_units)
    return nn.Identity() if sensor.is_entities or len(sensor.shape) == 1 else Flat(sensor.size)


class Trunk(nn.Module):
    """Encoder, body and optional memory, of an actor or a critic, or shared by both."""

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, *, memory_start: int = 0) -> None:
        """memory_start: first column of this trunk's part of an agent's memory."""
        super().__init__()
        self.encoder = ObservationEncoder(spec.observation_specs, settings)
        self.body = body_for(self.encoder, self.encoder.output_size, settings)
        self.memory = None if settings.memory is None else make_memory(settings.hidden_units, settings.memory)
        self.memory_size = 0 if self.memory is None else self.memory.size
        self.output_size = settings.hidden_units if self.memory is None else self.memory.output_size
        self._own = slice(memory_start, memory_start + self.memory_size)

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Maps normalized observations, one float tensor [B, …] per sensor, to [B, hidden_units]; without memory."""
        return self.body.forward(self.encoder.forward(observations))

    def unroll(self, features: Tensor, sequences: Sequences | None) -> Tensor:
        """Applies the memory to features of ``forward``, in time order: [B, output_size]. Unchanged without one."""
        if self.memory is None or sequences is None:
            return features
        return self.memory.unroll(features, sequences.memories[:, self._own], sequences.filled)

    def encode(self, inputs: EncoderInput) -> Tensor:
        """Returns features of the selected steps, [B, output_size], given all earlier steps."""
        features = self.forward(observations_as_floats(inputs.observations))
        return inputs.select(self.unroll(features, inputs.sequences))

    def step(self, observations: Sequence[Tensor], memories: Tensor) -> tuple[Tensor, Tensor]:
        """One step of B agents with these memories: returns [B, output_size], and this trunk's next memories."""
        if self.memory is None:
            raise ValueError("there is no memory to step on")
        return self.memory.step(self.forward(observations), memories[:, self._own])


def body_for(
    encoder: ObservationEncoder, inputs: int, settings: NetworkSettings
) -> LinearBody | NormedBody | ConditionalBody:
    """Makes the body after an encoder. inputs: number of its features and of optional further inputs.

    Raises ValueError if the settings select two kinds of body at once.
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
