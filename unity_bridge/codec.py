"""Messages to records and back: the one module that the rest of the package needs to cross the wire.

Everything here is a pure function of bytes, except that a StepDecoder remembers the layouts that it met.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from unity_bridge.action_codec import decode_actions, encode_actions
from unity_bridge.errors import WireError
from unity_bridge.sensor_layout import SensorLayout, tell_layout
from unity_bridge.sensor_reader import is_compressed, require_floats
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType
from unity_bridge.step_decoder import StepDecoder
from unity_bridge.step_encoder import encode_steps
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.brain_parameters_pb2 import ActionSpecProto, BrainParametersProto
from unity_bridge.wire.observation_pb2 import ObservationProto
from unity_bridge.wire.space_type_pb2 import continuous

__all__ = [
    "Description",
    "StepDecoder",
    "decode_actions",
    "decode_behavior_spec",
    "encode_actions",
    "encode_behavior_spec",
    "encode_steps",
]

LARGEST_ACTION = 1 << 20
"""Most continuous actions, and most discrete choices in all, that a behavior may claim: a size that comes
from outside must not decide how much memory is taken."""


LARGEST_OBSERVATION = 1 << 24
"""Most numbers that one observation may claim to have: a picture of 2364 x 2364 in three colours."""


MOST_DIMENSIONS = 8
"""Of one observation; ML-Agents knows up to three."""


class Description(NamedTuple):
    """What is known of a behavior from its first message."""

    spec: BehaviorSpec

    layouts: tuple[SensorLayout, ...]
    """How each sensor's values lie in this simulator's messages; other simulators may send them otherwise."""


def decode_behavior_spec(
    brain: BrainParametersProto, first_row: bytes, package_version: str = ""
) -> Description:
    """What a behavior sees and does: its actions as declared, its sensors as in its first agent's info.

    Args:
        brain: The declaration. Old simulators fill in only the deprecated fields, which are read then.
        first_row: A serialized AgentInfoProto from the message that carried the declaration.
        package_version: What the simulator said of itself; tells in which order its pictures lie.

    Raises:
        WireError: The row cannot be parsed, or one of the two describes what cannot be; names the behavior.
    """
    where = f"behavior '{brain.brain_name}'"
    try:
        info = AgentInfoProto.FromString(first_row)
    except DecodeError as error:
        raise WireError(f"{where}: expected an AgentInfoProto, got {len(first_row)} other bytes") from error
    declared = [
        _decode_sensor(observation, f"{where}, sensor {index} '{observation.name}'")
        for index, observation in enumerate(info.observations)
    ]
    sensors = [tell_layout(sensor, package_version) for sensor in declared]
    spec = BehaviorSpec(tuple(spec for spec, _ in sensors), _decode_action_spec(brain, where))
    return Description(spec, tuple(layout for _, layout in sensors))


def encode_behavior_spec(behavior_id: str, spec: ActionSpec) -> BrainParametersProto:
    """The declaration of a behavior, to be sent beside its first agent's info, which shows the sensors."""
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
    """The sensor as declared. What comes compressed is believed up to a size; its files are read with the row."""
    shape = tuple(observation.shape)
    if len(shape) > MOST_DIMENSIONS:
        raise WireError(f"{where}: expected at most {MOST_DIMENSIONS} dimensions, got {len(shape)}")
    try:
        spec = ObservationSpec(
            name=observation.name,
            shape=shape,
            dimension_property=tuple(DimensionProperty(flags) for flags in observation.dimension_properties),
            observation_type=ObservationType(observation.observation_type),
        )
    except ValueError as error:
        raise WireError(f"{where}: {error}") from error
    if spec.size > LARGEST_OBSERVATION:
        raise WireError(f"{where}: expected at most {LARGEST_OBSERVATION} numbers, got shape {shape}")
    if not is_compressed(observation, len(shape)):
        require_floats(observation, spec.size, f"{where}, shape {shape}")
    return spec


def _decode_action_spec(brain: BrainParametersProto, where: str) -> ActionSpec:
    declared = brain.action_spec
    continuous_size, branches = declared.num_continuous_actions, tuple(declared.discrete_branch_sizes)
    if declared.num_discrete_actions not in (0, len(branches)):
        raise WireError(
            f"{where}: num_discrete_actions is {declared.num_discrete_actions}, "
            f"but discrete_branch_sizes lists {len(branches)}"
        )
    if not continuous_size and not branches:
        sizes = tuple(brain.vector_action_size_deprecated)
        if brain.vector_action_space_type_deprecated == continuous:
            continuous_size = sizes[0] if sizes else 0
        else:
            branches = sizes
    if continuous_size > LARGEST_ACTION or sum(branches) > LARGEST_ACTION:
        raise WireError(
            f"{where}: expected at most {LARGEST_ACTION} actions, "
            f"got {continuous_size} continuous ones and {sum(branches)} discrete choices"
        )
    try:
        return ActionSpec(continuous_size, branches)
    except ValueError as error:
        raise WireError(f"{where}: {error}") from error
