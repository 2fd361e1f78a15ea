"""Rows with pictures, as PNG files and as floats, become one array of channels, rows and columns per sensor."""

from __future__ import annotations

import io
from collections.abc import Sequence
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


def test_the_last_of_two_kinds_of_data_counts() -> None:
    (frame,) = frames(1)
    negative = as_floats(255 - frame)
    files = ObservationProto(compression_type=PNG, compressed_data=encode_png(frame))
    floats = ObservationProto(float_data=plain(negative).float_data)
    mapping = ObservationProto(compressed_channel_mapping=channel_mapping(2))
    decoder = StepDecoder(BALL, SPEC)
    for _ in range(2):  # the second time, their layouts are known
        assert_camera(decoder.decode([row_of_fields(floats, files, mapping)]), frame[None])
        assert_camera(decoder.decode([row_of_fields(files, floats, mapping)]), negative[None])


def row_of_fields(*camera: ObservationProto) -> bytes:
    """Returns a row with the fields of its first sensor in the given order."""
    sensors = [b"".join(field.SerializeToString() for field in camera), SPEED.SerializeToString()]
    return b"".join(b"\x6a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data for data in sensors)


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


class TestOtherOrders:
    """Declarations of the first message, as the simulator's version interprets them."""

    FRAME = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)

    def seen(self, first: ObservationProto, version: str, *later: ObservationProto) -> list[StepBatch]:
        rows = [AgentInfoProto(observations=[o]).SerializeToString() for o in (first, *later)]
        brain = encode_behavior_spec(BALL, ActionSpec(1))
        description = decode_behavior_spec(brain, rows[0], version)
        assert description.spec.observation_specs == (ObservationSpec("camera", (3, 4, 5), PICTURE),)
        decoder = StepDecoder(BALL, *description)
        return [decoder.decode([data]) for data in rows]

    def observation(
        self, picture: NDArray[Any], properties: Sequence[int], shape: Sequence[int] = ()
    ) -> ObservationProto:
        observation = compressed(self.FRAME) if picture.dtype == np.uint8 else plain(picture)
        observation.shape[:] = shape or picture.shape
        observation.dimension_properties[:] = properties
        return observation

    @pytest.mark.parametrize(
        ("properties", "version"), [((2, 2, 1), "2.3.0"), ((2, 2, 1), ""), ((), "1.0.8")]
    )
    def test_channels_last_become_channels_first(self, properties: tuple[int, ...], version: str) -> None:
        last = as_floats(self.FRAME).transpose(1, 2, 0)
        floats = self.observation(last, properties)
        files = self.observation(self.FRAME, properties, last.shape)
        for first, second in ((floats, files), (files, floats)):
            batches = self.seen(first, version, second)
            for batch, sent in zip(batches, (first, second), strict=True):
                expected = self.FRAME if sent is files else as_floats(self.FRAME)
                np.testing.assert_array_equal(batch.observations[0], expected[None], strict=True)

    def test_a_later_message_must_declare_the_same_order(self) -> None:
        first = self.observation(as_floats(self.FRAME).transpose(1, 2, 0), (2, 2, 1))
        with pytest.raises(WireError, match=r"'camera': expected shape \(4, 5, 3\), got \(3, 4, 5\)"):
            self.seen(first, "2.3.0", self.observation(as_floats(self.FRAME), (1, 2, 2)))


def changed(picture: NDArray[np.uint8] | None = None, **fields: Any) -> ObservationProto:
    """A compressed picture with other fields."""
    observation = compressed(frames(1)[0] if picture is None else picture)
    for name, value in fields.items():
        if isinstance(value, list | tuple):
            getattr(observation, name)[:] = value
        else:
            setattr(observation, name, value)
    return observation


LARGE = np.zeros((2, 40, 50), np.uint8)
FILE = encode_png(frames(1)[0])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            changed(LARGE, shape=SHAPE),
            ", PNG file 0: expected 5 x 4 pixels (width x height), got 50 x 40",
        ),
        (changed(LARGE), ": expected shape (2, 4, 5), got (2, 40, 50)"),
        (
            changed(compressed_data=FILE[:-3]),
            f", PNG file 0: expected {len(FILE)} bytes or more, got {len(FILE) - 3}",
        ),
        (ObservationProto(compression_type=PNG), ": expected a PNG file, got 0 other bytes"),
        (
            changed(compressed_data=FILE * 2),
            ": expected 3 channels for the mapping, got 6 channels in 2 files",
        ),
        (
            changed(compressed_channel_mapping=[0, 1, 2]),
            ": expected a mapping to channels 0 to 1, got [0, 1, 2]",
        ),
        (changed(compression_type=NONE), ": expected 40 floats, got compressed data of type 0"),
        (ObservationProto(float_data={"data": [0.0] * 39}), ": expected 40 floats, got 39"),
        (ObservationProto(), ": expected 40 floats, got 0"),
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
