"""Rows with pictures, as PNG files and as floats, become one array of channels, rows and columns per sensor."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image

from unity_bridge.codec import columns, png_files
from unity_bridge.codec.messages import decode_behavior_spec, encode_behavior_spec
from unity_bridge.codec.pictures import channel_mapping, encode_png
from unity_bridge.codec.step_decoder import StepDecoder
from unity_bridge.errors import WireError
from unity_bridge.specs import PICTURE, ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch, as_floats
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import NONE, PNG, ObservationProto

BALL = "Ball?team=0"
SHAPE = (2, 4, 5)
SPEC = BehaviorSpec(
    (ObservationSpec("camera", SHAPE, PICTURE), ObservationSpec("speed", (3,))), ActionSpec(1, (2,))
)
SPEED = ObservationProto(name="speed", shape=[3], float_data={"data": [0.5, -1.0, 2.0]})


def compressed(picture: NDArray[np.uint8]) -> ObservationProto:
    return ObservationProto(
        name="camera",
        shape=picture.shape,
        compression_type=PNG,
        compressed_data=encode_png(picture),
        compressed_channel_mapping=channel_mapping(len(picture)),
    )


def plain(picture: NDArray[np.float32]) -> ObservationProto:
    return ObservationProto(
        name="camera",
        shape=picture.shape,
        float_data=ObservationProto.FloatData(data=picture.ravel().tolist()),
    )


def row(camera: ObservationProto, agent: int = 1, **fields: Any) -> bytes:
    return AgentInfoProto(id=agent, observations=[camera, SPEED], **fields).SerializeToString()


def frames(count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), np.uint8)


def decode(*rows: bytes) -> StepBatch:
    return StepDecoder(BALL, SPEC).decode(rows)


def assert_camera(batch: StepBatch, expected: NDArray[Any]) -> None:
    np.testing.assert_array_equal(batch.observations[0], expected, strict=True)
    np.testing.assert_array_equal(
        batch.observations[1], np.tile(np.float32([0.5, -1.0, 2.0]), (len(batch), 1))
    )


def test_one_fractional_mean_makes_the_whole_message_floats() -> None:
    sent = frames(3)
    mixed = compressed(sent[1])
    mixed.compressed_data = encode_png(np.concatenate([sent[1], sent[2][:1]]))
    mixed.compressed_channel_mapping[:] = [0, 1, 1]
    batch = decode(row(compressed(sent[0]), 0), row(mixed, 1), row(compressed(sent[2]), 2))
    expected = as_floats(sent)
    expected[1, 1] = (sent[1][1].astype(np.float32) + sent[2][0]) / np.float32(510)
    assert_camera(batch, expected)


def test_pictures_follow_agents_when_terminal_rows_move_first() -> None:
    sent = frames(3)
    batch = decode(
        row(compressed(sent[0]), 4), row(compressed(sent[1]), 5), row(compressed(sent[2]), 4, done=True)
    )
    np.testing.assert_array_equal(batch.agent_ids, [4, 4, 5])
    assert_camera(batch, sent[[2, 0, 1]])


KINDS = st.sampled_from(["bytes", "floats"])


@settings(deadline=None, max_examples=60)
@given(
    stream=st.lists(
        st.lists(st.tuples(hnp.arrays(np.uint8, SHAPE), KINDS), max_size=5), min_size=1, max_size=4
    )
)
def test_any_stream_of_bytes_and_floats_is_what_was_sent(
    stream: list[list[tuple[NDArray[np.uint8], str]]],
) -> None:
    decoder = StepDecoder(BALL, SPEC)
    for message in stream:
        rows = [
            row(compressed(frame) if kind == "bytes" else plain(as_floats(frame)), agent, reward=agent % 2)
            for agent, (frame, kind) in enumerate(message)
        ]
        batch = decoder.decode(rows)
        sent = np.array([frame for frame, _ in message], np.uint8).reshape(-1, *SHAPE)
        are_bytes = message and all(kind == "bytes" for _, kind in message)
        assert_camera(batch, sent if are_bytes else as_floats(sent))


@pytest.mark.parametrize(("properties", "version"), [((2, 2, 1), "2.3.0"), ((2, 2, 1), ""), ((), "1.0.8")])
def test_channels_last_become_channels_first(properties: tuple[int, ...], version: str) -> None:
    """As the simulator's version interprets the declaration of the first message."""
    frame = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    floats, files = plain(as_floats(frame).transpose(1, 2, 0)), compressed(frame)
    for sent in (floats, files):
        sent.shape[:], sent.dimension_properties[:] = (4, 5, 3), properties
    for sensors in ((floats, files), (files, floats)):
        rows = [AgentInfoProto(observations=[sent]).SerializeToString() for sent in sensors]
        brain = encode_behavior_spec(BALL, ActionSpec(1))
        decoder = StepDecoder(BALL, *decode_behavior_spec(brain, rows[0], version))
        for sent, data in zip(sensors, rows, strict=True):
            expected = frame if sent is files else as_floats(frame)
            np.testing.assert_array_equal(decoder.decode([data]).observations[0], expected[None], strict=True)


def changed(**fields: Any) -> ObservationProto:
    """A compressed picture with other fields."""
    observation = compressed(frames(1)[0])
    for name, value in fields.items():
        setattr(observation, name, value)
    return observation


FILE = encode_png(frames(1)[0])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (compressed(np.zeros((2, 40, 50), np.uint8)), ": expected shape (2, 4, 5), got (2, 40, 50)"),
        (
            changed(compressed_data=FILE[:-3]),
            f", PNG file 0: expected {len(FILE)} bytes or more, got {len(FILE) - 3}",
        ),
        (ObservationProto(compression_type=PNG), ": expected a PNG file, got 0 other bytes"),
        (changed(compression_type=NONE), ": expected 40 floats, got compressed data of type 0"),
        (ObservationProto(float_data={"data": [0.0] * 39}), ": expected 40 floats, got 39"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refused_picture_leaves_the_decoder_as_it_was(bad: ObservationProto, reason: str) -> None:
    sent = frames(2)
    good = [row(compressed(frame), agent) for agent, frame in enumerate(sent)]
    used = StepDecoder(BALL, SPEC)
    used.decode([*good, row(plain(as_floats(sent[0])), 7)])
    for decoder in (StepDecoder(BALL, SPEC), used):
        with pytest.raises(WireError) as refusal:
            decoder.decode([good[0], row(bad, 2), good[1]])
        assert str(refusal.value) == f"behavior 'Ball?team=0', agent 2, sensor 0 'camera'{reason}"
        assert_camera(decoder.decode(good), sent)


def test_pictures_that_would_be_too_large_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "LARGEST_COLUMN", 100)
    rows = [row(compressed(frame), agent) for agent, frame in enumerate(frames(3))]
    assert len(decode(*rows[:2])) == 2
    with pytest.raises(WireError) as refusal:
        decode(*rows)
    assert str(refusal.value) == (
        "behavior 'Ball?team=0', sensor 0 'camera': "
        "expected compressed pictures of 100 numbers at most, got 3 of 40"
    )


def test_pictures_that_decode_to_far_too_much_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A simulator says itself how large its pictures are: 16 KB of black may be 16 million pixels."""
    monkeypatch.setattr(columns, "MAX_DECODED", 3 * 512 * 512)
    spec = BehaviorSpec((ObservationSpec("eye", (1, 512, 512)),), ActionSpec(1))
    file = io.BytesIO()
    Image.new("RGB", (512, 512)).save(file, "PNG", compress_level=9)
    noise = encode_png(np.random.default_rng(0).integers(0, 256, (1, 512, 512), np.uint8))
    black, grey = (
        ObservationProto(shape=(1, 512, 512), compression_type=PNG, compressed_data=data)
        for data in (file.getvalue(), noise)
    )
    decoder = StepDecoder(BALL, spec)
    for rows in ([black], [black, grey, grey]):
        assert len(
            decoder.decode(
                [AgentInfoProto(id=n, observations=[o]).SerializeToString() for n, o in enumerate(rows)]
            )
        )
    monkeypatch.setattr(png_files.PngFile, "pixels", lambda *_: pytest.fail("decoded"))
    sent = 2 * len(black.compressed_data)
    with pytest.raises(WireError) as refusal:
        decoder.decode([AgentInfoProto(id=n, observations=[black]).SerializeToString() for n in range(2)])
    assert str(refusal.value) == (
        f"behavior 'Ball?team=0', sensor 0 'eye': expected PNG files of {sent} bytes to unfold to "
        f"{3 * 512 * 512 + 256 * sent} numbers at most, got {2 * 3 * 512 * 512}"
    )


@pytest.mark.parametrize("agents", [1, 2000])
def test_black_pictures_of_ordinary_size_may_come_in_any_number(
    agents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what many cameras show first."""
    monkeypatch.setattr(columns, "MAX_DECODED", 0)
    monkeypatch.setattr(png_files.PngFile, "pixels", lambda file: np.zeros((84, 84, 3), np.uint8))
    spec = BehaviorSpec((ObservationSpec("eye", (3, 84, 84)),), ActionSpec(1))
    data = encode_png(np.zeros((3, 84, 84), np.uint8))
    black = ObservationProto(shape=(3, 84, 84), compression_type=PNG, compressed_data=data)
    rows = [AgentInfoProto(id=n, observations=[black]).SerializeToString() for n in range(agents)]
    assert len(StepDecoder(BALL, spec).decode(rows)) == agents
