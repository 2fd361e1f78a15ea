"""Varints, fields and layouts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.codec.rows import (
    FIXED32,
    LENGTH,
    VARINT,
    Entry,
    RowLayout,
    Value,
    entries,
    read_varints,
    varint_width,
    write_varints,
)


def test_varints_by_hand() -> None:
    # 300 = 2·128 + 44: low seven bits first, 0x80 on every byte but the last.
    np.testing.assert_array_equal(write_varints(np.array([300, 5]), 2), [[0x80 | 44, 2], [5, 0]])
    np.testing.assert_array_equal(read_varints(np.array([[0x80 | 44, 2]], np.uint8)), [300])


@pytest.mark.parametrize(
    ("number", "width"), [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (2**31, 5)]
)
def test_a_varint_holds_seven_bits_a_byte(number: int, width: int) -> None:
    assert varint_width(number) == width


def test_fields_lie_where_their_tags_say() -> None:
    data = b"\x08\x80\x01" + b"\x12\x02ab" + b"\x1d\x00\x00\x80\x3f" + b"\x21" + b"\x00" * 8
    assert list(entries(data, 0, len(data))) == [
        Entry(1, VARINT, 1, 3),
        Entry(2, LENGTH, 5, 7),
        Entry(3, FIXED32, 8, 12),
        Entry(4, 1, 13, 21),
    ]


EXAMPLE = b"A\x00\x00\x80\x3fB\x85\x01C"
LAYOUT = RowLayout(EXAMPLE, {"x": Value.float(1), "n": Value.number(6, 8)})


def test_a_layout_reads_and_writes_values_at_their_places() -> None:
    rows = LAYOUT.blank(2)
    rows["x"] = [1.0, 2.0]
    rows["n"] = write_varints(np.array([133, 300]), 2)
    data = rows.tobytes()
    assert data == EXAMPLE + b"A\x00\x00\x00\x40B\xac\x02C"
    np.testing.assert_array_equal(LAYOUT.table(data)["x"], [1.0, 2.0])
    np.testing.assert_array_equal(read_varints(LAYOUT.table(data)["n"]), [133, 300])


@pytest.mark.parametrize(
    ("row", "fits"),
    [
        (EXAMPLE, True),
        (b"A\x00\x00\x00\x40B\xac\x02C", True),
        (b"Z\x00\x00\x80\x3fB\x85\x01C", False),  # another tag
        (b"A\x00\x00\x80\x3fB\x05\x01C", False),  # a narrower number
    ],
)
def test_a_row_fits_a_layout_when_only_values_differ(row: bytes, fits: bool) -> None:
    assert LAYOUT.fits(row) == fits
    assert LAYOUT.fits(EXAMPLE + row) == fits
    np.testing.assert_array_equal(LAYOUT.fitting(EXAMPLE + row), [True, fits])


def test_a_layout_of_mostly_values_compares_its_few_fixed_bytes() -> None:
    size = 4 * 1000
    layout = RowLayout(
        b"A" + bytes(size) + b"B\x05C",
        {"x": Value.floats(1, size + 1), "n": Value.number(size + 2, size + 3)},
    )
    rng = np.random.default_rng(0)
    good = [b"A" + rng.bytes(size) + b"B" + bytes([number]) + b"C" for number in (0, 127)]
    bad = [b"B" + good[0][1:], good[0][:-1] + b"A", good[0][:-2] + b"\x80C"]
    assert layout.fits(b"".join(good))
    for row in bad:
        assert not layout.fits(good[0] + row)
        np.testing.assert_array_equal(layout.fitting(good[0] + row + good[1]), [True, False, True])
    assert not layout.fits(good[0] + b"A")
    np.testing.assert_array_equal(layout.table(good[1])["x"].tobytes(), good[1][1 : size + 1])
