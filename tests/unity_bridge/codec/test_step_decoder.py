"""Rows of any legal encoding become the batch that the protobuf library would have read; the rest is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_batches import require_equal_batches

from unity_bridge.codec import step_decoder
from unity_bridge.codec.pictures import channel_mapping, encode_png
from unity_bridge.codec.rows import varint_width, write_varints
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import PNG, ObservationProto

BALL = "Ball?team=0"
SPEC = BehaviorSpec((ObservationSpec("a", (2,)), ObservationSpec("b", (2, 3))), ActionSpec(1, (2, 3)))


def observation(spec: ObservationSpec, floats: Sequence[float]) -> ObservationProto:
    return ObservationProto(
        name=spec.name,
        shape=spec.shape,
        dimension_properties=[1] * len(spec.shape),
        float_data=ObservationProto.FloatData(data=floats),
    )


def info(agent: int = 1, **fields: Any) -> AgentInfoProto:
    observations = [observation(spec, range(spec.size)) for spec in SPEC.observation_specs]
    return AgentInfoProto(id=agent, **{"observations": observations, **fields})


def decode(*infos: AgentInfoProto) -> StepBatch:
    return StepDecoder(BALL, SPEC).decode([message.SerializeToString() for message in infos])


def read_by_protobuf(rows: Sequence[bytes]) -> StepBatch:
    """Decodes object by object rows in which no agent owns a deciding row before its terminal one."""
    infos = sorted(map(AgentInfoProto.FromString, rows), key=lambda message: not message.done)
    n, mask_size = len(infos), SPEC.action_spec.mask_size
    allowed = np.ones((n, mask_size), np.bool_)
    for row, message in enumerate(infos):
        forbidden = list(message.action_mask)
        stuck = all(forbidden[:2]) or all(forbidden[2:])
        if len(forbidden) == mask_size and (message.done or not stuck):
            allowed[row] = np.logical_not(message.action_mask)
    return StepBatch(
        agent_ids=np.array([message.id for message in infos], np.int64),
        observations=tuple(
            np.array([m.observations[i].float_data.data for m in infos], np.float32).reshape(n, *spec.shape)
            for i, spec in enumerate(SPEC.observation_specs)
        ),
        rewards=np.array([message.reward for message in infos], np.float32),
        terminated=np.array([m.done and not m.max_step_reached for m in infos], np.bool_),
        truncated=np.array([m.done and m.max_step_reached for m in infos], np.bool_),
        allowed_actions=allowed,
        group_ids=np.array([message.group_id for message in infos], np.int64),
        group_rewards=np.array([message.group_reward for message in infos], np.float32),
    )


FLOATS = st.floats(-(2.0**49), 2.0**49, width=32)
REWARDS = st.sampled_from([0.0, -0.0, 0.1, -1.0])
IDS = st.sampled_from([0, 1, 2, 5, 127, 128, 16_383, 16_384, 2**31 - 1, -1])


@st.composite
def messages(draw: st.DrawFn) -> list[bytes]:
    """Rows of one message: any mix of layouts, an agent's terminal row before its deciding one."""
    ended = draw(st.lists(IDS, unique=True, max_size=6))
    deciding = draw(st.lists(IDS, unique=True, max_size=6))
    rows = [
        info(
            agent,
            done=done,
            max_step_reached=draw(st.booleans()),
            reward=draw(REWARDS),
            group_id=draw(IDS),
            group_reward=draw(REWARDS),
            action_mask=draw(st.lists(st.booleans(), min_size=5, max_size=5) | st.lists(st.booleans())),
            observations=[
                observation(spec, draw(st.lists(FLOATS, min_size=spec.size, max_size=spec.size)))
                for spec in SPEC.observation_specs
            ],
        )
        for done, agents in ((True, ended), (False, deciding))
        for agent in agents
    ]
    if not set(ended) & set(deciding):
        rows = draw(st.permutations(rows))
    return [row.SerializeToString() for row in rows]


@settings(deadline=None, max_examples=60)
@given(stream=st.lists(messages(), min_size=1, max_size=4))
def test_a_decoder_reads_each_message_as_protobuf_does(stream: list[list[bytes]]) -> None:
    decoder = StepDecoder(BALL, SPEC)
    for rows in stream * 2:  # the second time, every layout is known
        require_equal_batches(decoder.decode(rows), read_by_protobuf(rows))


def test_rows_of_equal_length_but_different_layout_are_told_apart() -> None:
    rows = [info(n, **{("reward", "group_reward")[n % 2]: n + 1.0}).SerializeToString() for n in range(1, 9)]
    assert len(set(map(len, rows))) == 1
    decoder = StepDecoder(BALL, SPEC)
    for _ in range(2):
        require_equal_batches(decoder.decode(rows), read_by_protobuf(rows))


def test_a_short_id_is_not_read_as_a_long_one() -> None:
    short = info(1).SerializeToString().replace(b"\x50\x01", b"\x50\x01\x58\x01", 1)
    rows = [info(70_000).SerializeToString(), short]
    assert len(set(map(len, rows))) == 1
    require_equal_batches(StepDecoder(BALL, SPEC).decode(rows), read_by_protobuf(rows))


TAG = {"reward": b"\x3d", "done": b"\x40", "id": b"\x50", "action_mask": b"\x58"}


@pytest.mark.parametrize(
    "unusual",
    [
        pytest.param(TAG["done"] + b"\x00", id="a false that is written"),
        pytest.param(TAG["done"] + b"\x81\x00", id="a true of two bytes"),
        pytest.param(TAG["done"] + b"\x80\x00", id="a false of two bytes"),
        pytest.param(TAG["done"] + b"\x02", id="a true that is not 1"),
        pytest.param(TAG["id"] + b"\x85\x80\x00", id="an id wider than it needs to be, and the second one"),
        pytest.param(TAG["id"] + b"\xff" * 9 + b"\x01", id="an id below zero"),
        pytest.param(TAG["id"] + b"\xff\xff\xff\xff\x0f", id="an id of 32 bits that means one below zero"),
        pytest.param(b"\x5a\x02\x01\x00\x5a\x03\x00\x00\x01", id="a mask in two pieces"),
        pytest.param(TAG["action_mask"] + b"\x01" + TAG["action_mask"] + b"\x00", id="an unpacked mask"),
        pytest.param(b"\xa0\x06\x01", id="a field from the future"),
        pytest.param(b"\x08\x01", id="a field from the past"),
        pytest.param(b"\xa3\x06\xa4\x06", id="a group"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_unusually_written_rows_are_read_as_well(unusual: bytes, first: bool) -> None:
    plain = info(7, reward=1.0).SerializeToString()
    odd = unusual + info(0).SerializeToString() if first else info(3).SerializeToString() + unusual
    decoder = StepDecoder(BALL, SPEC)
    for _ in range(2):
        require_equal_batches(decoder.decode([plain, odd]), read_by_protobuf([plain, odd]))


def test_a_mask_of_another_length_forbids_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_decoder, "_throttled", ThrottledLogger(logging.getLogger()))
    unpacked = info(8).SerializeToString() + TAG["action_mask"] + b"\x01"
    for row in (info(7, action_mask=[True]).SerializeToString(), unpacked):
        assert StepDecoder(BALL, SPEC).decode([row]).allowed_actions.all()
    assert caplog.messages == [
        f"behavior 'Ball?team=0', agent {agent}: expected an action mask of 5 choices, got one of 1; "
        "it forbids nothing"
        for agent in (7, 8)
    ]


def test_a_mask_that_leaves_no_choice_forbids_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_decoder, "_throttled", ThrottledLogger(logging.getLogger()))
    stuck, ended = [False, True, True, True, True], [True] * 5
    rows = [
        info(6, action_mask=ended, done=True),
        info(7, action_mask=stuck),
        info(8, action_mask=[True, *[False] * 4]),
    ]
    batch = StepDecoder(BALL, SPEC).decode([row.SerializeToString() for row in rows])
    assert batch.allowed_actions.tolist() == [[False] * 5, [True] * 5, [False, True, True, True, True]]
    assert caplog.messages == [
        "behavior 'Ball?team=0', agent 7: action mask: no choice is left in branch 1 of (2, 3); every choice is allowed"
    ]


class TestOneAgentInOneMessage:
    def test_that_ends_after_it_asked_keeps_its_rewards(self) -> None:
        batch = decode(
            info(3, reward=1.0, group_reward=0.5), info(4), info(3, done=True, reward=2.0, group_reward=0.25)
        )
        np.testing.assert_array_equal(batch.agent_ids, [3, 3, 4])
        np.testing.assert_array_equal(batch.terminated, [True, False, False])
        np.testing.assert_array_equal(batch.rewards, [3.0, 0.0, 0.0])
        np.testing.assert_array_equal(batch.group_rewards, [0.75, 0.0, 0.0])

    @pytest.mark.parametrize("rows", ["..", "T..", ".T."])
    def test_may_not_ask_for_two_decisions(self, rows: str) -> None:
        with pytest.raises(WireError, match=r"'Ball\?team=0', agent 3: two rows .* ask for a decision"):
            decode(*(info(3, done=row == "T") for row in rows))

    @pytest.mark.parametrize("rows", ["TT", "TT.", ".TT", "T.TT"])
    def test_may_not_end_the_same_episode_twice(self, rows: str) -> None:
        with pytest.raises(WireError, match=r"'Ball\?team=0', agent 3: two rows .* end the same episode"):
            decode(*(info(3, done=row == "T") for row in rows))


def shortened(row: AgentInfoProto) -> None:
    row.observations[1].float_data.data.pop()


def packed(row: AgentInfoProto) -> None:
    row.observations[0].compression_type = PNG
    row.observations[0].compressed_data = b"..."


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda row: row.observations.pop(), "agent 2: expected 2 sensors, got 1"),
        (shortened, "agent 2, sensor 1 'b': expected 6 floats, got 5"),
        (
            lambda row: row.observations[0].ClearField("float_data"),
            "agent 2, sensor 0 'a': expected 2 floats, got 0",
        ),
        (
            lambda row: row.observations[1].MergeFrom(ObservationProto(shape=[1])),
            "agent 2, sensor 1 'b': expected shape (2, 3), got (2, 3, 1)",
        ),
        (
            lambda row: row.observations[0].MergeFrom(ObservationProto(name="c")),
            "agent 2, sensor 0 'a': expected the sensor of the first message, got 'c'",
        ),
        (packed, "agent 2, sensor 0 'a': expected 2 floats, got compressed data of type 1"),
        (None, "row 1: expected an AgentInfoProto, got 3 other bytes"),
    ],
)
def test_mistakes_are_named_in_the_first_message_and_in_later_ones(
    spoil: Callable[[AgentInfoProto], object] | None, reason: str
) -> None:
    bad = info(2)
    if spoil:
        spoil(bad)
    rows = [info(1, reward=1.0).SerializeToString(), bad.SerializeToString() if spoil else b"\xff\xff\xff"]
    used = StepDecoder(BALL, SPEC)
    used.decode(rows[:1])
    for decoder in (StepDecoder(BALL, SPEC), used):
        with pytest.raises(WireError) as refusal:
            decoder.decode(rows)
        assert str(refusal.value) == f"behavior 'Ball?team=0', {reason}"


def test_omitted_shapes_and_names_are_those_of_the_first_message() -> None:
    terse = info(1)
    for sensor in terse.observations:
        sensor.ClearField("shape")
        sensor.ClearField("name")
    require_equal_batches(decode(terse), decode(info(1)))


class TestRowsThatAreTooLong:
    """A row may be as long as its behavior's spec explains."""

    def test_are_refused_before_they_are_parsed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        long = info(2).SerializeToString() + b"\xa2\x06\x80\x80\x40" + bytes(1 << 20)
        assert len(AgentInfoProto.FromString(long).observations) == 2
        decoder = StepDecoder(BALL, SPEC)
        decoder.decode([info(1).SerializeToString()])
        monkeypatch.setattr(step_decoder, "AgentInfoProto", None)
        with pytest.raises(WireError, match=rf"row 1: expected at most \d{{4,5}} bytes, got {len(long)}$"):
            decoder.decode([info(1).SerializeToString(), long])

    @pytest.mark.parametrize("shape", [(300,), (20, 30), (3, 1, 1), (1, 84, 84), (3, 84, 84), (7, 5, 1)])
    def test_are_longer_than_any_legal_row(self, shape: tuple[int, ...]) -> None:
        """Each float with a tag of its own, each mask bit too, or pictures of noise with a colour profile."""
        spec = BehaviorSpec((ObservationSpec("x" * 100, shape),), ActionSpec(0, (1000,)))
        numbers = b"\x0d\x00\x00\x80\x3f" * spec.observation_specs[0].size
        floats = ObservationProto(name="x" * 100, shape=shape, dimension_properties=[7] * len(shape))
        floats.float_data.ParseFromString(numbers)
        unpacked = b"\x22" + _length(len(numbers)) + numbers
        told = ObservationProto(name="x" * 100, shape=shape, dimension_properties=[7] * len(shape))
        rows = [unpacked + told.SerializeToString()]
        if len(shape) == 3:
            noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
            told.compression_type = PNG
            told.compressed_data = encode_png(noise)
            told.compressed_channel_mapping.extend(channel_mapping(shape[0]))
            rows.append(told.SerializeToString())
        decoder = StepDecoder(BALL, spec)
        for row in rows:
            mask = b"\x58\x00" * 1000
            data = mask + b"\x6a" + _length(len(row)) + row
            assert len(decoder.decode([data])) == 1


def _length(number: int) -> bytes:
    return write_varints(np.array([number]), varint_width(number)).tobytes()


def test_choices_that_were_only_claimed_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_decoder, "MOST_CHOICES", 9)
    decode(info(1))
    with pytest.raises(WireError, match="expected agents with 9 choices at most, got 2 with 5"):
        decode(info(1), info(2))
