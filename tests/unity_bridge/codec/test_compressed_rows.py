"""Rows with pictures of bytes are what Unity would send, and come back as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unity_bridge.codec.messages import decode_behavior_spec, encode_behavior_spec
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.codec.step_encoder import encode_steps
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

VECTOR = ObservationSpec("speed", (3,), (DimensionProperty.NONE,), ObservationType.GOAL_SIGNAL)
CAMERAS = st.integers(1, 7).map(lambda channels: ObservationSpec("camera", (channels, 3, 4), PICTURE))


def infos(batch: StepBatch, spec: BehaviorSpec) -> list[AgentInfoProto]:
    return list(UnityRLOutputProto.ListAgentInfoProto.FromString(encode_steps(batch, spec)).value)


def batch_of(*observations: Any, **changes: Any) -> StepBatch:
    n = len(observations[0])
    fields: dict[str, Any] = {
        "agent_ids": np.arange(n),
        "observations": observations,
        "rewards": np.zeros(n, np.float32),
        "terminated": np.zeros(n, np.bool_),
        "truncated": np.zeros(n, np.bool_),
        "allowed_actions": np.ones((n, 2), np.bool_),
        "group_ids": np.zeros(n, np.int64),
        "group_rewards": np.zeros(n, np.float32),
    }
    return StepBatch(**{**fields, **changes})


@settings(deadline=None, max_examples=40)
@given(data=st.data(), n=st.integers(1, 5), cameras=st.lists(CAMERAS, min_size=1, max_size=2))
def test_what_is_sent_comes_back(data: st.DataObject, n: int, cameras: list[ObservationSpec]) -> None:
    sensors = (*cameras, VECTOR)
    spec = BehaviorSpec(sensors, ActionSpec(1, (2,)))
    floats = st.floats(-(2.0**49), 2.0**49, width=32)  # within what can be learned from
    kinds = [data.draw(st.sampled_from([np.uint8, np.float32])) for _ in cameras]
    terminal = data.draw(st.integers(0, n))
    sent = batch_of(
        *(
            data.draw(hnp.arrays(kind, (n, *camera.shape), elements=None if kind is np.uint8 else floats))
            for kind, camera in zip(kinds, cameras, strict=True)
        ),
        data.draw(hnp.arrays(np.float32, (n, 3), elements=floats)),
        rewards=data.draw(hnp.arrays(np.float32, n, elements=st.sampled_from([0.0, -1.0, 0.5]))),
        terminated=np.arange(n) < terminal,
        allowed_actions=data.draw(hnp.arrays(np.bool_, (n, 2))),
        group_ids=data.draw(hnp.arrays(np.int64, n, elements=st.sampled_from([0, 1, 300]))),
    )
    rows = [info.SerializeToString() for info in infos(sent, spec)]
    brain = encode_behavior_spec("Ball?team=0", spec.action_spec)
    description = decode_behavior_spec(brain, rows[0], "3.0.1")
    assert description.spec == spec
    seen = StepDecoder("Ball?team=0", *description).decode(rows)
    for name in StepBatch.__slots__:
        if name != "observations":
            np.testing.assert_array_equal(getattr(seen, name), getattr(sent, name), err_msg=name)
    for ours, theirs in zip(seen.observations, sent.observations, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_rows_look_as_unity_writes_them() -> None:
    spec = BehaviorSpec((ObservationSpec("camera", (1, 3, 4), PICTURE), VECTOR), ActionSpec(0, (2,)))
    batch = batch_of(
        np.zeros((2, 1, 3, 4), np.uint8), np.ones((2, 3), np.float32), truncated=np.array([True, False])
    )
    first, second = infos(batch, spec)
    assert [field.name for field, _ in first.ListFields()] == ["done", "max_step_reached", "observations"]
    assert [field.name for field, _ in second.ListFields()] == ["id", "observations"]
    camera, speed = second.observations
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
    spec = BehaviorSpec((ObservationSpec("bits", (2,)),), ActionSpec(0, (2,)))
    (info,) = infos(batch_of(np.array([[0, 255]], np.uint8)), spec)
    assert list(info.observations[0].float_data.data) == [0.0, 1.0]
