"""The simulator's rows are, byte for byte, what the protobuf library would have written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from step_batches import require_equal_batches

from unity_bridge.codec import step_encoder
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.codec.step_encoder import encode_steps
from unity_bridge.errors import WireError
from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import (
    PICTURE,
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from unity_bridge.steps import StepBatch
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import PNG
from unity_bridge.wire.unity_rl_output_pb2 import UnityRLOutputProto

IDS = st.sampled_from([0, 1, 5, 127, 128, 300, 16_383, 16_384, 2**28, 2**31 - 1])
REWARDS = st.sampled_from([0.0, -0.0, 0.1, -1.0, float(np.float32(1e-45))])


def written_by_protobuf(batch: StepBatch, spec: BehaviorSpec) -> bytes:
    message = UnityRLOutputProto.ListAgentInfoProto()
    masked = not batch.allowed_actions.all()
    for row in range(len(batch)):
        info = message.value.add(
            reward=batch.rewards[row],
            done=bool(batch.terminated[row] or batch.truncated[row]),
            max_step_reached=bool(batch.truncated[row]),
            id=int(batch.agent_ids[row]),
            action_mask=(~batch.allowed_actions[row]).tolist() if masked else (),
            group_id=int(batch.group_ids[row]),
            group_reward=batch.group_rewards[row],
        )
        for sensor, values in zip(spec.observation_specs, batch.observations, strict=True):
            observation = info.observations.add(
                shape=sensor.shape,
                dimension_properties=[int(flags) for flags in sensor.dimension_property],
                observation_type=int(sensor.observation_type),
                name=sensor.name,
            )
            observation.float_data.data.extend(values[row].ravel().tolist())
    return message.SerializeToString()


SENSORS = st.sampled_from(
    [
        ObservationSpec("VectorSensor_size3", (3,), (DimensionProperty.NONE,)),
        ObservationSpec("goal", (2,), (DimensionProperty.NONE,), ObservationType.GOAL_SIGNAL),
        ObservationSpec("entities", (4, 5), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)),
        ObservationSpec("picture", (2, 3, 4)),
        ObservationSpec("", (40,)),
    ]
)
ACTIONS = st.sampled_from([ActionSpec(2), ActionSpec(0, (3,)), ActionSpec(1, (2, 4)), ActionSpec(0, (200,))])


@st.composite
def specs(draw: st.DrawFn) -> BehaviorSpec:
    return BehaviorSpec(tuple(draw(st.lists(SENSORS, max_size=3))), draw(ACTIONS))


@st.composite
def batches(draw: st.DrawFn, spec: BehaviorSpec) -> StepBatch:
    n = draw(st.integers(0, 9))
    terminal = draw(st.integers(0, n))
    ended = np.arange(n) < terminal
    truncated = ended & draw(hnp.arrays(np.bool_, n))
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    mask_size = spec.action_spec.mask_size
    masks = draw(st.sampled_from(["all allowed", "random"]))
    return StepBatch(
        agent_ids=draw(hnp.arrays(np.int64, n, elements=IDS)),
        observations=tuple(
            draw(hnp.arrays(np.float32, (n, *sensor.shape), elements=floats))
            for sensor in spec.observation_specs
        ),
        rewards=draw(hnp.arrays(np.float32, n, elements=REWARDS)),
        terminated=ended & ~truncated,
        truncated=truncated,
        allowed_actions=(
            np.ones((n, mask_size), np.bool_)
            if masks == "all allowed"
            else draw(hnp.arrays(np.bool_, (n, mask_size)))
        ),
        group_ids=draw(hnp.arrays(np.int64, n, elements=IDS)),
        group_rewards=draw(hnp.arrays(np.float32, n, elements=REWARDS)),
    )


@pytest.mark.parametrize("long_row", [0, step_encoder.LONG_ROW], ids=["as long rows", "as they are"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_rows_are_what_protobuf_would_write(long_row: int, data: st.DataObject) -> None:
    spec = data.draw(specs())
    batch = data.draw(batches(spec))
    with patch.object(step_encoder, "LONG_ROW", long_row):
        assert encode_steps(batch, spec) == written_by_protobuf(batch, spec)


def one_row(**changes: object) -> StepBatch:
    fields: dict[str, object] = {
        "observations": (np.zeros((1, 3), np.float32),),
        "rewards": np.zeros(1, np.float32),
        "agent_ids": np.zeros(1, np.int64),
        "allowed_actions": np.ones((1, 2), np.bool_),
    }
    return step_batch(**{**fields, **changes})  # type: ignore[arg-type]


SPEC = BehaviorSpec((ObservationSpec("a", (3,)),), ActionSpec(0, (2,)))


def infos(batch: StepBatch, spec: BehaviorSpec) -> list[AgentInfoProto]:
    return list(UnityRLOutputProto.ListAgentInfoProto.FromString(encode_steps(batch, spec)).value)


def test_rows_with_pictures_of_bytes_look_as_unity_writes_them() -> None:
    goal = ObservationSpec("speed", (3,), (DimensionProperty.NONE,), ObservationType.GOAL_SIGNAL)
    spec = BehaviorSpec((ObservationSpec("camera", (1, 3, 4), PICTURE), goal), ActionSpec(0, (2,)))
    seen = (np.zeros((1, 1, 3, 4), np.uint8), np.ones((1, 3), np.float32))
    (row,) = infos(one_row(observations=seen, truncated=np.array([True])), spec)
    assert [field.name for field, _ in row.ListFields()] == ["done", "max_step_reached", "observations"]
    camera, speed = row.observations
    assert (camera.name, list(camera.shape), list(camera.dimension_properties)) == (
        "camera",
        [1, 3, 4],
        [1, 2, 2],
    )
    assert camera.compression_type == PNG
    assert list(camera.compressed_channel_mapping) == [0, 0, 0]
    assert camera.compressed_data.startswith(b"\x89PNG")
    assert (speed.name, list(speed.float_data.data), speed.observation_type) == ("speed", [1.0] * 3, 1)


def test_bytes_of_no_picture_are_sent_as_floats_of_one() -> None:
    (info,) = infos(one_row(observations=(np.array([[0, 51, 255]], np.uint8),)), SPEC)
    np.testing.assert_allclose(info.observations[0].float_data.data, [0.0, 0.2, 1.0], rtol=1e-6)


@pytest.mark.parametrize("field", ["agent_ids", "group_ids"])
@pytest.mark.parametrize("number", [-1, 2**31])
def test_ids_beyond_the_wire_are_refused(field: str, number: int) -> None:
    with pytest.raises(ValueError, match=rf"id: expected numbers of 0 to 2147483647, got \[{number}\]"):
        encode_steps(one_row(**{field: np.array([number])}), SPEC)


def test_masks_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="expected masks of 2 choices, got 1"):
        encode_steps(one_row(allowed_actions=np.ones((1, 1), np.bool_)), SPEC)


def decoded(batch: StepBatch, spec: BehaviorSpec) -> StepBatch:
    return StepDecoder("Walker", spec).decode([row.SerializeToString() for row in infos(batch, spec)])


def outcome(make: Callable[[], StepBatch]) -> StepBatch | str:
    try:
        return make()
    except WireError as error:
        return str(error)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_an_adopted_batch_is_what_the_wire_would_bring(data: st.DataObject) -> None:
    spec = data.draw(specs())
    batch = data.draw(batches(spec))
    few = data.draw(hnp.arrays(np.int64, len(batch), elements=st.integers(0, 5)))
    seen = tuple(
        data.draw(hnp.arrays(np.uint8, values.shape)) if values.size and values.ndim == 4 else values
        for values in batch.observations
    )
    if data.draw(st.booleans()):  # pictures as files
        batch = dataclasses.replace(batch, observations=seen)
    batch = dataclasses.replace(batch, agent_ids=few)
    for values in (batch.rewards, *batch.observations):
        if values.dtype == np.float32 and values.size and data.draw(st.booleans()):
            values.flat[data.draw(st.integers(0, values.size - 1))] = np.nan
    wire, decoder = outcome(lambda: decoded(batch, spec)), StepDecoder("Walker", spec)
    adopted = outcome(lambda: decoder.adopt(batch))
    if isinstance(wire, str) or isinstance(adopted, str):
        assert wire == adopted
        return
    require_equal_batches(adopted, wire)
    if not decoder.counts_unusable:  # the agents of the message before
        require_equal_batches(decoder.adopt(batch), wire)


def test_an_adopted_batch_passes_the_checks_of_a_message() -> None:
    spoilt = one_row(rewards=np.array([np.nan], np.float32))
    with pytest.raises(WireError, match="reward: expected a finite number, got nan"):
        StepDecoder("Walker", SPEC, refuse_unusable=True).adopt(spoilt)
    for field in ("agent_ids", "group_ids"):
        with pytest.raises(ValueError, match=r"id: expected numbers of 0 to 2147483647, got \[-1\]"):
            StepDecoder("Walker", SPEC).adopt(one_row(**{field: np.array([-1])}))


def test_an_adopted_batch_shares_no_memory() -> None:
    batch = one_row()
    adopted = StepDecoder("Walker", SPEC).adopt(batch)
    for field in dataclasses.fields(StepBatch):
        values = getattr(batch, field.name)
        for array in values if isinstance(values, tuple) else [values]:
            if isinstance(array, np.ndarray):
                array[...] = 1
    np.testing.assert_array_equal(adopted.observations[0], 0.0)
    assert not adopted.terminated.any()
    assert not adopted.rewards.any()
    with pytest.raises(ValueError, match=r"expected observations of shapes \[\(3,\)\], got \[\(1,\)\]"):
        StepDecoder("Walker", SPEC).adopt(one_row(observations=(np.zeros((1, 1), np.float32),)))
