"""Pictures of any number of channels travel in files of three, as Unity's sensors send them."""

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

from unity_bridge.codec import pictures
from unity_bridge.codec.pictures import decode_png, encode_png, parse_picture
from unity_bridge.errors import WireError

HEIGHT, WIDTH = 2, 3


def file(*channels: int, mode: str = "RGB") -> bytes:
    """Returns a PNG file of equal pixels."""
    data = io.BytesIO()
    colour = channels if len(channels) > 1 else channels[0]
    Image.new(mode, (WIDTH, HEIGHT), colour).save(data, "PNG")
    return data.getvalue()


def decode(data: bytes, channels: int, mapping: tuple[int, ...] = ()) -> NDArray[Any]:
    """The picture's channels, each of which must be alike everywhere."""
    picture = decode_png(data, (channels, HEIGHT, WIDTH), mapping, "here")
    assert picture.shape == (channels, HEIGHT, WIDTH)
    assert (picture == picture[:, :1, :1]).all()
    return picture[:, 0, 0]


def assert_bytes(values: NDArray[Any], expected: list[int]) -> None:
    assert values.dtype == np.uint8
    assert values.tolist() == expected


def assert_floats(values: NDArray[Any], expected: list[float]) -> None:
    """A share of 255."""
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, np.float32(np.array(expected) / 255))


class TestWithoutMapping:
    def test_channels_are_taken_as_they_come(self) -> None:
        assert_bytes(decode(file(1, 2, 3) + file(4, 5, 6), 6), [1, 2, 3, 4, 5, 6])

    @pytest.mark.parametrize("channels", [4, 5])
    def test_those_that_fill_the_last_file_are_dropped(self, channels: int) -> None:
        expected = [1, 2, 3, 4, 5, 6][:channels]
        assert_bytes(decode(file(1, 2, 3) + file(4, 5, 6), channels), expected)

    def test_a_single_channel_is_the_mean_of_the_colours(self) -> None:
        assert_floats(decode(file(1, 2, 4), 1), [7 / 3])


class TestMapping:
    @pytest.mark.parametrize(
        ("mapping", "expected"),
        [
            ((0, 1, 2), [10, 20, 40]),
            ((2, 0, 1), [20, 40, 10]),
            ((-1, 0, 1), [20, 40]),
            ((1, 0, -1), [20, 10]),
            ((-1, -1, 0), [40]),
        ],
    )
    def test_says_where_each_channel_goes(self, mapping: tuple[int, ...], expected: list[int]) -> None:
        assert_bytes(decode(file(10, 20, 40), len(expected), mapping), expected)

    def test_channels_that_go_to_one_are_averaged_and_not_rounded(self) -> None:
        assert_floats(decode(file(10, 20, 40), 1, (0, 0, 0)), [70 / 3])
        assert_floats(decode(file(10, 21, 40), 2, (0, 0, 1)), [15.5, 40])

    def test_every_pixel_counts_whether_a_mean_is_a_byte(self) -> None:
        grey = np.full((3, HEIGHT, WIDTH), 5, np.uint8)
        grey[1, -1, -1] = 8
        mean = decode_png(encode_png(grey), (1, HEIGHT, WIDTH), (0, 0, 0), "here")
        np.testing.assert_array_equal(mean[0, -1], np.float32([5 / 255, 5 / 255, 6 / 255]))


class TestStackedSensorsThatRememberNothingYet:
    """Unity sends one black file for a slot, however many files its mapping gives to each."""

    BLACK = file(0, 0, 0)

    @pytest.mark.parametrize("inner", [4, 5, 6, 7, 9])
    @pytest.mark.parametrize("slots", [2, 3, 4])
    def test_see_zeros_there(self, inner: int, slots: int) -> None:
        padded = (*range(inner), *(-1,) * (-inner % 3))
        mapping = tuple(
            channel if channel < 0 else channel + inner * slot for slot in range(slots) for channel in padded
        )
        for empty in range(1, slots):
            full = [
                np.full((inner, HEIGHT, WIDTH), slot + 1, np.uint8) * np.uint8(10)
                for slot in range(slots - empty)
            ]
            data = self.BLACK * empty + b"".join(map(encode_png, full))
            expected = [0] * (empty * inner) + [
                10 * (slot + 1) for slot in range(len(full)) for _ in range(inner)
            ]
            assert_bytes(decode(data, inner * slots, mapping), expected)

    def test_do_not_excuse_files_that_are_missing_elsewhere(self) -> None:
        mapping = (0, 1, 2, 3, -1, -1, 4, 5, 6, 7, -1, -1)
        for data in (file(1, 0, 0) + file(5, 6, 7) + file(8, 0, 0), self.BLACK * 2, self.BLACK):
            with pytest.raises(WireError, match=r"^here: expected 12 channels for the mapping, got"):
                decode(data, 8, mapping)


class TestFilesThatUnityDoesNotSend:
    def test_grey_ones_have_three_equal_colours(self) -> None:
        grey = file(9, mode="L")
        assert_bytes(decode(grey, 1), [9])
        assert_bytes(decode(grey, 1, (0, 0, 0)), [9])
        assert_bytes(decode(grey, 3), [9, 9, 9])

    def test_alpha_is_dropped_where_colours_are_wanted(self) -> None:
        clear = file(1, 2, 3, 99, mode="RGBA")
        assert_bytes(decode(clear, 3), [1, 2, 3])
        assert_bytes(decode(clear, 3, (2, 1, 0)), [3, 2, 1])
        assert_floats(decode(clear, 1), [2.0])

    def test_alpha_is_a_channel_where_four_are_wanted(self) -> None:
        clear = file(1, 2, 3, 99, mode="RGBA")
        assert_bytes(decode(clear, 4), [1, 2, 3, 99])
        assert_bytes(decode(clear, 4, (3, 2, 1, 0)), [99, 3, 2, 1])
        assert_bytes(decode(file(7, 99, mode="LA"), 2), [7, 99])
        assert_bytes(decode(file(7, 99, mode="LA"), 1), [7])


@pytest.mark.parametrize(
    ("files", "channels", "mapping", "reason"),
    [
        (1, 4, (), "expected PNG files of 4 channels, got 3 channels in 1 files"),
        (2, 3, (), "expected PNG files of 3 channels, got 6 channels in 2 files"),
        (2, 1, (), "expected PNG files of 1 channels, got 6 channels in 2 files"),
        (1, 6, (0, 1, 2, 3, 4, 5), "expected 6 channels for the mapping, got 3 channels in 1 files"),
        (2, 3, (0, 1, 2), "expected 3 channels for the mapping, got 6 channels in 2 files"),
        (1, 3, (0, 1), "expected 2 channels for the mapping, got 3 channels in 1 files"),
        (1, 3, (0, 1, 1), "expected a mapping to channels 0 to 2, got [0, 1, 1]"),
        (1, 2, (0, 1, 2), "expected a mapping to channels 0 to 1, got [0, 1, 2]"),
        (1, 2, (0, 1, -2), "expected a mapping to channels 0 to 1, got [0, 1, -2]"),
        (1, 1, (-1, -1, -1), "expected a mapping to channels 0 to 0, got [-1, -1, -1]"),
        (1, 3, (0, 1, 2**31 - 1), "expected a mapping to channels 0 to 2, got [0, 1, 2147483647]"),
    ],
)
def test_wrong_files_and_mappings_are_refused_before_decoding(
    files: int, channels: int, mapping: tuple[int, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file(1, 2, 3) * files
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(WireError) as refusal:
        parse_picture(data, (channels, HEIGHT, WIDTH), mapping, "here")
    assert str(refusal.value) == f"here: {reason}"


def test_many_files_that_would_be_dropped_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = file(1, 2, 3) + file(4, 5, 6) * 9
    monkeypatch.setattr(pictures, "LARGEST_DECODED", 29 * HEIGHT * WIDTH)
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(WireError) as refusal:
        parse_picture(data, (3, HEIGHT, WIDTH), (0, 1, 2, *(-1,) * 27), "here")
    assert str(refusal.value) == "here: expected PNG files of 174 numbers at most, got 10 of 3 x 2 pixels"


def test_an_overlong_mapping_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every way to repeat itself would be tried on it."""
    monkeypatch.setattr(pictures, "parse_files", lambda *_, **__: pytest.fail("looked for files"))
    with pytest.raises(WireError) as refusal:
        parse_picture(file(0, 0, 0), (3, HEIGHT, WIDTH), (0, 1, 2) * 100_000, "here")
    assert str(refusal.value) == "here: expected a mapping of at most 44 decoded channels to 3, got 300000"


@settings(deadline=None, max_examples=100)
@given(data=st.data(), files=st.integers(1, 3), channels=st.integers(1, 9))
def test_any_mapping_averages_its_channels_or_is_refused(
    data: st.DataObject, files: int, channels: int
) -> None:
    sent = data.draw(hnp.arrays(np.uint8, (3 * files, 2, 2)))
    mapping = data.draw(st.lists(st.integers(-1, channels), min_size=3 * files, max_size=3 * files))
    try:
        decoded = decode_png(encode_png(sent), (channels, 2, 2), mapping, "here")
    except WireError:
        assert set(mapping) - {-1} != set(range(channels))
        return
    for channel in range(channels):
        mean = np.mean([sent[i] for i, target in enumerate(mapping) if target == channel], axis=0)
        ours = decoded[channel] / np.float64(255 if decoded.dtype == np.uint8 else 1)
        np.testing.assert_allclose(ours, mean / 255, rtol=1e-6)
