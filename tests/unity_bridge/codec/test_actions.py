"""Actions are written as the protobuf library would write them, and read as Unity reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unity_bridge.codec.actions import decode_actions, encode_actions
from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.agent_action_pb2 import AgentActionProto
from unity_bridge.wire.unity_rl_input_pb2 import UnityRLInputProto

HYBRID = ActionSpec(2, (3, 200))


def message(*actions: AgentActionProto) -> bytes:
    return UnityRLInputProto.ListAgentActionProto(value=actions).SerializeToString()


def action(continuous: Sequence[float] = (), discrete: Sequence[int] = ()) -> AgentActionProto:
    return AgentActionProto(
        vector_actions_deprecated=[*continuous, *discrete],
        continuous_actions=continuous,
        discrete_actions=discrete,
    )


INDICES = st.sampled_from([0, 1, 2, 127, 128, 16_384, -1])


@st.composite
def batches(draw: st.DrawFn) -> ActionBatch:
    rows, continuous, discrete = (draw(st.integers(0, most)) for most in (5, 40, 3))
    floats = st.floats(-1, 1, width=32)
    return ActionBatch(
        draw(hnp.arrays(np.float32, (rows, continuous), elements=floats)),
        draw(hnp.arrays(np.int32, (rows, discrete), elements=INDICES)),
    )


@settings(deadline=None)
@given(batches())
def test_actions_are_what_protobuf_would_write_and_are_read_back(actions: ActionBatch) -> None:
    rows = zip(actions.continuous.tolist(), actions.discrete.tolist(), strict=True)
    data = encode_actions(actions)
    assert data == message(*(action(continuous, discrete) for continuous, discrete in rows))

    spec = ActionSpec(actions.continuous.shape[1], (200,) * actions.discrete.shape[1])
    decoded = decode_actions(data, len(actions), spec, "behavior 'B'")
    np.testing.assert_array_equal(decoded.continuous, actions.continuous, strict=True)
    np.testing.assert_array_equal(decoded.discrete, actions.discrete, strict=True)


@pytest.mark.parametrize("data", [b"", message(action(), action())], ids=["no rows", "empty rows"])
def test_nothing_means_zeros(data: bytes) -> None:
    actions = decode_actions(data, 2, HYBRID, "behavior 'B'")
    np.testing.assert_array_equal(actions.continuous, np.zeros((2, 2)))
    np.testing.assert_array_equal(actions.discrete, np.zeros((2, 2)))


@pytest.mark.parametrize("surplus", [0, 1], ids=["rows", "rows and numbers"])
def test_a_surplus_is_ignored(surplus: int) -> None:
    row = action([0.5, -0.5] + [9.0] * surplus, [1, 2] + [9] * surplus)
    actions = decode_actions(message(row, row), 1, HYBRID, "behavior 'B'")
    np.testing.assert_array_equal(actions.continuous, [[0.5, -0.5]])
    np.testing.assert_array_equal(actions.discrete, [[1, 2]])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "expected a ListAgentActionProto, got 1 other bytes"),
        (message(action([0, 0], [0, 0])), "expected actions for 2 agents, got 1"),
        (message(*[action([0], [0, 0])] * 2), "row 0: expected 2 continuous_actions, got 1"),
        (message(*[action([0, 0], [0])] * 2), "row 0: expected 2 discrete_actions, got 1"),
    ],
)
def test_too_little_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=f"^behavior 'B'(, |: ){reason}$"):
        decode_actions(data, 2, HYBRID, "behavior 'B'")


def test_decoded_actions_may_be_written_to() -> None:
    """A simulator clips them in place."""
    actions = decode_actions(message(action([0.5, 2.0], [1, 2])), 1, HYBRID, "behavior 'B'")
    np.clip(actions.continuous, -1, 1, out=actions.continuous)
    np.testing.assert_array_equal(actions.continuous, [[0.5, 1.0]])
