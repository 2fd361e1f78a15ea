"""The codec of messages and records: the one module that the rest of the package needs to cross the wire.

Everything here is a pure function of bytes, except that a StepDecoder remembers the layouts that it
met, and RepeatedLayouts those of whole messages.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from unity_bridge.codec.actions import decode_actions as decode_actions
from unity_bridge.codec.actions import encode_actions as encode_actions
from unity_bridge.codec.repeated_layout import RepeatedLayouts as RepeatedLayouts
from unity_bridge.codec.sensor_layout import SensorLayout, detect_layout
from unity_bridge.codec.sensor_reader import COMPRESSIBLE_RANK, is_compressed, require_floats
from unity_bridge.codec.step_decoder import StepDecoder as StepDecoder
from unity_bridge.codec.step_encoder import encode_steps as encode_steps
from unity_bridge.errors import DeclarationError, WireError
from unity_bridge.names import length_problem
from unity_bridge.specs import (
    MOST_DIMENSIONS,
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    PictureLayout,
)
from unity_bridge.untrusted_text import quoted
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.brain_parameters_pb2 import ActionSpecProto, BrainParametersProto
from unity_bridge.wire.observation_pb2 import ObservationProto
from unity_bridge.wire.space_type_pb2 import continuous

# What a simulator claims must not decide how much memory and time its next message takes. These limits are far above
# anything that can be learned from; the largest of ML-Agents' examples sees 84 x 84 x 3 numbers and has 39 actions.

LARGEST_ACTION = 1 << 16
"""Most continuous actions, and most discrete choices in all, that a behavior may claim."""

MOST_BRANCHES = 1024
"""Discrete branches that a behavior may claim."""

LARGEST_OBSERVATION = 1 << 24
"""Most numbers that an agent may claim to see: a picture of 2364 x 2364 in three colours."""

LARGEST_VECTOR = 1 << 21
"""Most numbers of an observation that is no picture, being the inputs of a dense layer."""

MOST_CHANNELS = 4096
"""Most channels of a picture, because each may come as a file of its own."""

MOST_SENSORS = 256

_KNOWN_PROPERTIES = functools.reduce(operator.or_, DimensionProperty).value


class BehaviorDescription(NamedTuple):
    """The description of a behavior in its first message."""

    spec: BehaviorSpec

    layouts: tuple[SensorLayout, ...]
    """The layout of each sensor's values in this simulator's messages; other simulators may use others."""


def decode_behavior_spec(
    brain: BrainParametersProto,
    first_row: bytes,
    package_version: str = "",
    picture_layout: PictureLayout = "auto",
) -> BehaviorDescription:
    """Returns a behavior's description: its actions as declared, its sensors as in its first agent's info.

    Args:
        brain: The declaration. Old simulators fill in only the deprecated fields, which are read then.
        first_row: A serialized AgentInfoProto from the message that carried the declaration.
        package_version: What the simulator said of itself; tells in which order its pictures lie.
        picture_layout: Tells it instead, see ``detect_layout``.

    Raises:
        DeclarationError: One of the two describes what cannot be; names the behavior.
        WireError: The row cannot be parsed.
    """
    where = f"behavior {quoted(brain.brain_name)}"
    name, _, parameters = brain.brain_name.partition("?")
    _require_short(name, f"{where}: its name")
    _require_short(parameters, f"{where}: what follows its name")
    try:
        info = AgentInfoProto.FromString(first_row)
    except DecodeError as error:
        raise WireError(f"{where}: expected an AgentInfoProto, got {len(first_row)} other bytes") from error
    if len(info.observations) > MOST_SENSORS:
        raise DeclarationError(
            f"{where}: expected at most {MOST_SENSORS} sensors, got {len(info.observations)}"
        )
    declared = [
        _decode_sensor(observation, f"{where}, sensor {index} {quoted(observation.name)}")
        for index, observation in enumerate(info.observations)
    ]
    sensors = [detect_layout(sensor, package_version, picture_layout) for sensor in declared]
    for index, (sensor, _) in enumerate(sensors):
        if len(sensor.shape) == COMPRESSIBLE_RANK and sensor.shape[0] > MOST_CHANNELS:
            raise DeclarationError(
                f"{where}, sensor {index} {quoted(sensor.name)}: "
                f"expected at most {MOST_CHANNELS} channels, got {sensor.shape[0]}"
            )
    size = sum(sensor.size for sensor in declared)
    if size > LARGEST_OBSERVATION:
        raise DeclarationError(
            f"{where}: expected at most {LARGEST_OBSERVATION} numbers in all observations, got {size}"
        )
    spec = BehaviorSpec(tuple(spec for spec, _ in sensors), _decode_action_spec(brain, where))
    return BehaviorDescription(spec, tuple(layout for _, layout in sensors))


def encode_behavior_spec(behavior_id: str, spec: ActionSpec) -> BrainParametersProto:
    """Returns the declaration of a behavior, to be sent beside its first agent's info, which shows the sensors."""
    return BrainParametersProto(
        brain_name=behavior_id,
        is_training=True,
        action_spec=ActionSpecProto(
            num_continuous_actions=spec.continuous_size,
            num_discrete_actions=spec.discrete_size,
            discrete_branch_sizes=spec.discrete_branches,
        ),
    )


def _decode_sensor(observation: ObservationProto, where: str) -> ObservationSpec:
    """Returns the sensor as declared. A compressed one is believed up to a size; its files are read with the row."""
    _require_short(observation.name, f"{where}: its name")
    shape = tuple(observation.shape)
    if max(len(shape), len(observation.dimension_properties)) > MOST_DIMENSIONS:
        raise DeclarationError(
            f"{where}: expected at most {MOST_DIMENSIONS} dimensions, "
            f"got {len(shape)} and properties of {len(observation.dimension_properties)}"
        )
    try:
        spec = ObservationSpec(
            name=observation.name,
            shape=shape,
            dimension_property=tuple(map(_dimension_property, observation.dimension_properties)),
            observation_type=ObservationType(observation.observation_type),
        )
    except ValueError as error:
        raise DeclarationError(f"{where}: {error}") from error
    if spec.size > LARGEST_OBSERVATION:
        raise DeclarationError(f"{where}: expected at most {LARGEST_OBSERVATION} numbers, got shape {shape}")
    if not is_compressed(observation, len(shape)):
        require_floats(observation, spec.size, f"{where}, shape {shape}")
    if len(shape) != COMPRESSIBLE_RANK and spec.size > LARGEST_VECTOR:
        raise DeclarationError(
            f"{where}: expected at most {LARGEST_VECTOR} numbers where it is no picture, got shape {shape}"
        )
    return spec


def _dimension_property(flags: int) -> DimensionProperty:
    """Returns the known flags only. Python remembers every combination that it is ever asked for."""
    return DimensionProperty(flags & _KNOWN_PROPERTIES)


def _require_short(text: str, what: str) -> None:
    if problem := length_problem(text):
        raise DeclarationError(f"{what} {problem}")


def _decode_action_spec(brain: BrainParametersProto, where: str) -> ActionSpec:
    declared = brain.action_spec
    continuous_size, branches = declared.num_continuous_actions, tuple(declared.discrete_branch_sizes)
    if declared.num_discrete_actions not in (0, len(branches)):
        raise DeclarationError(
            f"{where}: num_discrete_actions is {declared.num_discrete_actions}, "
            f"but discrete_branch_sizes lists {len(branches)}"
        )
    if not continuous_size and not branches:
        sizes = tuple(brain.vector_action_size_deprecated)
        if brain.vector_action_space_type_deprecated == continuous:
            continuous_size = sizes[0] if sizes else 0
        else:
            branches = sizes
    if len(branches) > MOST_BRANCHES:
        raise DeclarationError(f"{where}: expected at most {MOST_BRANCHES} branches, got {len(branches)}")
    if continuous_size > LARGEST_ACTION or sum(branches) > LARGEST_ACTION:
        raise DeclarationError(
            f"{where}: expected at most {LARGEST_ACTION} actions, "
            f"got {continuous_size} continuous ones and {sum(branches)} discrete choices"
        )
    try:
        return ActionSpec(continuous_size, branches)
    except ValueError as error:
        raise DeclarationError(f"{where}: {error}") from error
