"""Numbers and text in bodies: their bytes, their ends, and what cannot have been meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_bridge.errors import WireError
from unity_bridge.side_channels.values import BodyReader, BodyWriter

FLOATS = st.floats(width=32, allow_nan=False)
INT32 = st.integers(-(2**31), 2**31 - 1)
ASCII = st.text(st.characters(max_codepoint=127), max_size=20)


def reader(body: bytes) -> BodyReader:
    return BodyReader(body, "message")


def test_values_have_the_bytes_that_unity_expects() -> None:
    writer = BodyWriter().bool(True).int32(-2).float32(1.0).string("size").float32_list([0.5, -2.0])
    assert writer.body() == bytes.fromhex("01 feffffff 0000803f 04000000 73697a65 02000000 0000003f 000000c0")


@given(st.booleans(), INT32, FLOATS, ASCII, st.lists(FLOATS, max_size=5), INT32)
def test_values_are_read_in_the_order_of_writing(
    flag: bool, number: int, real: float, text: str, reals: list[float], last: int
) -> None:
    writer = BodyWriter().bool(flag).int32(number).float32(real).string(text).float32_list(reals).int32(last)
    read = reader(writer.body())
    assert (read.bool(), read.int32(), read.float32()) == (flag, number, real)
    assert (read.string(), read.float32_list(), read.int32()) == (text, reals, last)


@pytest.mark.parametrize(
    ("read", "default"),
    [
        (BodyReader.bool, False),
        (BodyReader.int32, 0),
        (BodyReader.float32, 0.0),
        (BodyReader.float32_list, []),
        (BodyReader.string, ""),
    ],
)
def test_past_the_end_there_are_defaults(read: Callable[[BodyReader], Any], default: object) -> None:
    at_the_end = reader(BodyWriter().int32(7).body())
    assert at_the_end.int32() == 7
    for _ in range(2):
        value = read(at_the_end)
        assert value == default
        assert type(value) is type(default)


@pytest.mark.parametrize("read", [BodyReader.int32, BodyReader.float32, BodyReader.string])
@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_number_cut_in_its_middle_is_refused(read: Callable[[BodyReader], Any], left: int) -> None:
    with pytest.raises(WireError, match=f"message: expected 4 bytes of .*, got {left}"):
        read(reader(b"\0" * left))


@pytest.mark.parametrize("length", [-1, -(2**31)])
def test_a_text_of_negative_length_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=f"message: a text says it has {length} bytes"):
        reader(BodyWriter().int32(length).body() + b"abc").string()


@pytest.mark.parametrize("count", [-1, 3, 2**31 - 1])
def test_lists_longer_than_the_body_are_refused(count: int) -> None:
    with pytest.raises(WireError, match=f"message: a list says it has {count} floats, got 8 bytes"):
        reader(BodyWriter().int32(count).body() + bytes(8)).float32_list()


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda: BodyWriter().int32(2**31), "expected a number that fits into 32 bits, got 2147483648"),
        (lambda: BodyWriter().int32(-(2**31) - 1), "expected a number that fits into 32 bits"),
        (lambda: BodyWriter().float32(1e39), r"expected a number that fits into a 32-bit float, got 1e\+39"),
        (lambda: BodyWriter().string("größe"), "expected ASCII text, got 'größe'"),
    ],
)
def test_values_that_do_not_fit_the_wire_raise_value_error(
    write: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        write()
