"""A behavior's declaration and its first row make its spec, or are refused by name."""

from __future__ import annotations

import pytest

from unity_bridge.codec.messages import (
    LARGEST_ACTION,
    LARGEST_OBSERVATION,
    LARGEST_VECTOR,
    MOST_BRANCHES,
    MOST_CHANNELS,
    MOST_SENSORS,
    decode_behavior_spec,
    encode_behavior_spec,
)
from unity_bridge.errors import DeclarationError, WireError
from unity_bridge.specs import (
    PICTURE,
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.brain_parameters_pb2 import ActionSpecProto, BrainParametersProto
from unity_bridge.wire.observation_pb2 import GOAL_SIGNAL, PNG, ObservationProto
from unity_bridge.wire.space_type_pb2 import continuous, discrete

BALL = "Ball?team=0"


def vector(size: int = 2) -> ObservationProto:
    return ObservationProto(shape=[size], float_data=ObservationProto.FloatData(data=[0.0] * size))


def row(*observations: ObservationProto) -> bytes:
    return AgentInfoProto(observations=observations).SerializeToString()


@pytest.mark.parametrize("spec", [ActionSpec(2), ActionSpec(0, (3, 2)), ActionSpec(1, (2,)), ActionSpec()])
def test_actions_are_declared_and_understood(spec: ActionSpec) -> None:
    assert decode_behavior_spec(encode_behavior_spec(BALL, spec), row()).spec == BehaviorSpec((), spec)


def test_sensors_are_those_of_the_first_row() -> None:
    buffer = ObservationProto(
        name="entities",
        shape=[2, 3],
        dimension_properties=[4, 1],
        observation_type=GOAL_SIGNAL,
        float_data=ObservationProto.FloatData(data=[0.0] * 6),
    )
    picture = ObservationProto(name="camera", shape=[3, 8, 8], compression_type=PNG, compressed_data=b"...")
    brain = encode_behavior_spec(BALL, ActionSpec(1))
    assert decode_behavior_spec(brain, row(vector(), buffer, picture)).spec.observation_specs == (
        ObservationSpec("", (2,)),
        ObservationSpec(
            "entities",
            (2, 3),
            (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE),
            ObservationType.GOAL_SIGNAL,
        ),
        ObservationSpec("camera", (3, 8, 8), PICTURE),
    )


@pytest.mark.parametrize(
    ("space_type", "spec"), [(continuous, ActionSpec(3)), (discrete, ActionSpec(0, (3, 4)))]
)
def test_old_simulators_declare_actions_in_the_deprecated_fields(space_type: int, spec: ActionSpec) -> None:
    brain = BrainParametersProto(
        brain_name=BALL,
        vector_action_size_deprecated=[3, 4] if space_type == discrete else [3],
        vector_action_space_type_deprecated=space_type,  # type: ignore[arg-type]  # the enum's numbers
    )
    assert decode_behavior_spec(brain, row()).spec.action_spec == spec


def declared(**fields: object) -> BrainParametersProto:
    spec = ActionSpecProto(**fields)  # type: ignore[arg-type]
    return BrainParametersProto(brain_name=BALL, action_spec=spec)


@pytest.mark.parametrize(
    ("brain", "reason"),
    [
        (declared(num_continuous_actions=-1), ": impossible action sizes: -1, ()"),
        (declared(discrete_branch_sizes=[2, 0]), ": impossible action sizes: 0, (2, 0)"),
        (
            declared(discrete_branch_sizes=[-1] * 1000),
            f": impossible action sizes: 0, {(-1,) * 24}… (1000 branches)",
        ),
        (
            declared(num_discrete_actions=3, discrete_branch_sizes=[2]),
            ": num_discrete_actions is 3, but discrete_branch_sizes lists 1",
        ),
        (
            declared(discrete_branch_sizes=[2**31 - 1]),
            f": expected at most {LARGEST_ACTION} actions, "
            f"got 0 continuous ones and {2**31 - 1} discrete choices",
        ),
        (
            declared(discrete_branch_sizes=[2] * (MOST_BRANCHES + 1)),
            f": expected at most {MOST_BRANCHES} branches, got {MOST_BRANCHES + 1}",
        ),
    ],
)
def test_impossible_actions_are_refused(brain: BrainParametersProto, reason: str) -> None:
    with pytest.raises(WireError) as refusal:
        decode_behavior_spec(brain, row())
    assert str(refusal.value) == f"behavior '{BALL}'{reason}"


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (ObservationProto(name="a", shape=[0]), ": sensor 'a': every dimension must be at least 1, got (0,)"),
        (
            ObservationProto(name="a", shape=[2], float_data={"data": [1.0]}),
            ", shape (2,): expected 2 floats, got 1",
        ),
        (
            ObservationProto(name="a", shape=[2], compression_type=PNG, compressed_data=b"..."),
            ", shape (2,): expected 2 floats, got compressed data of type 1",
        ),
        (
            ObservationProto(name="a", shape=[3, 10**5, 10**5], compression_type=PNG),
            f": expected at most {LARGEST_OBSERVATION} numbers, got shape (3, 100000, 100000)",
        ),
        (ObservationProto(name="a", shape=[1] * 9), ": expected at most 8 dimensions, got 9"),
        (
            ObservationProto(name="a", shape=[1], dimension_properties=[1, 1], float_data={"data": [1.0]}),
            ": sensor 'a': 2 dimension properties for 1 dimensions",
        ),
        (
            ObservationProto(name="a", shape=[1], dimension_properties=[1] * 9, float_data={"data": [1.0]}),
            ": expected at most 8 dimensions, got 1 and properties of 9",
        ),
        (
            ObservationProto(
                name="a", shape=[LARGEST_VECTOR + 1], float_data={"data": [1.0] * (LARGEST_VECTOR + 1)}
            ),
            f": expected at most {LARGEST_VECTOR} numbers where it is no picture, got shape",
        ),
        (
            ObservationProto(name="a", shape=[MOST_CHANNELS + 1, 1, 1], compression_type=PNG),
            f": expected at most {MOST_CHANNELS} channels, got {MOST_CHANNELS + 1}",
        ),
        (ObservationProto(name="a", shape=[1], observation_type=5), ": 5 is not a valid ObservationType"),
    ],
)
def test_impossible_sensors_are_refused(observation: ObservationProto, reason: str) -> None:
    with pytest.raises(WireError) as refusal:
        decode_behavior_spec(encode_behavior_spec(BALL, ActionSpec(1)), row(vector(), observation))
    assert str(refusal.value).startswith(f"behavior '{BALL}', sensor 1 'a'{reason}")


def test_a_first_row_that_is_no_message_is_refused() -> None:
    with pytest.raises(WireError, match=r"^behavior 'Ball\?team=0': expected an AgentInfoProto, got 1 other"):
        decode_behavior_spec(encode_behavior_spec(BALL, ActionSpec(1)), b"\xff")


def test_more_sensors_and_numbers_than_anybody_learns_from_are_refused() -> None:
    brain = encode_behavior_spec(BALL, ActionSpec(1))
    many = [vector()] * (MOST_SENSORS + 1)
    with pytest.raises(WireError, match=f"expected at most {MOST_SENSORS} sensors, got {MOST_SENSORS + 1}$"):
        decode_behavior_spec(brain, row(*many))
    large = ObservationProto(name="a", shape=[1, 4096, 2049], compression_type=PNG)
    size = 2 * 4096 * 2049
    with pytest.raises(
        WireError, match=f"at most {LARGEST_OBSERVATION} numbers in all observations, got {size}$"
    ):
        decode_behavior_spec(brain, row(large, large))


def test_names_of_sensors_are_limited_and_quoted() -> None:
    odd = ObservationProto(name="\x1b[31m" + "ä" * 98, shape=[1], float_data={"data": [1.0]})
    with pytest.raises(
        DeclarationError, match=r"its name must be at most 200 bytes long, got 201$"
    ) as refusal:
        decode_behavior_spec(encode_behavior_spec(BALL, ActionSpec(1)), row(odd))
    assert len(str(refusal.value)) < 300
    assert "\x1b" not in str(refusal.value)


def test_unknown_properties_are_left_out() -> None:
    for flags in (9, 1 << 20, -8):
        odd = ObservationProto(name="a", shape=[1], dimension_properties=[flags], float_data={"data": [1.0]})
        spec = decode_behavior_spec(encode_behavior_spec(BALL, ActionSpec(1)), row(odd)).spec
        assert spec.observation_specs[0].dimension_property == (DimensionProperty(flags & 7),)
