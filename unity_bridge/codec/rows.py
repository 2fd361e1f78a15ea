"""Protobuf messages of equal layout as the rows of one NumPy table.

Two serialized messages with the same fields, in the same widths, differ only in the bytes of their values. So
many of them, back to back, are a table: a record type says where each value lies, and one comparison of all
other bits shows that they really are laid out alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types: the low three bits of a tag."""

Row = bytes | memoryview
"""One serialized message, by itself or within the bytes of another."""

LONGEST_VARINT = 10
"""Bytes of the longest number."""

MOSTLY_FREE = 32
"""A layout with this many bytes for each one that is fixed, such as a picture of floats, is compared in its few fixed
bytes only."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a serialized message, as it lies in the bytes."""

    number: int
    wire_type: int
    start: int
    """Offset of its value; for LENGTH, of its payload."""
    stop: int


@dataclass(frozen=True, slots=True)
class Value:
    """Bytes of a row that change from row to row."""

    format: np.typing.DTypeLike
    start: int
    stop: int
    free_bits: int
    """Which bits of each byte may differ between rows of the same layout."""

    @staticmethod
    def float(start: int) -> Value:
        """One little-endian float."""
        return Value("<f4", start, start + 4, 0xFF)

    @staticmethod
    def floats(start: int, stop: int) -> Value:
        """Little-endian floats side by side."""
        return Value(("<f4", ((stop - start) // 4,)), start, stop, 0xFF)

    @staticmethod
    def number(start: int, stop: int) -> Value:
        """One varint, whose continuation bits are layout: they tell its width; or several of one byte, of 0 to 127."""
        return Value(("u1", (stop - start,)), start, stop, 0x7F)

    @staticmethod
    def bit(start: int) -> Value:
        """One boolean of one byte."""
        return Value("u1", start, start + 1, 0x01)

    @staticmethod
    def bits(start: int, stop: int) -> Value:
        """Booleans of one byte each."""
        return Value(("u1", (stop - start,)), start, stop, 0x01)


class RowLayout:
    """A layout that many messages share: which bits are the same in all of them, and where the values lie."""

    def __init__(self, example: bytes, values: Mapping[str, Value]) -> None:
        self.size = len(example)
        self.values = values
        self._record = np.dtype(
            {
                "names": list(values),
                "formats": [value.format for value in values.values()],
                "offsets": [value.start for value in values.values()],
                "itemsize": self.size,
            }
        )
        self.fixed_bits = np.full(self.size, 0xFF, np.uint8)
        """Which bits of each byte are the same in all rows. Shape [size]."""
        for value in values.values():
            self.fixed_bits[value.start : value.stop] = 0xFF ^ value.free_bits
        self._template = (np.frombuffer(example, np.uint8) & self.fixed_bits).tobytes()
        fixed_positions = np.flatnonzero(self.fixed_bits)
        self._fixed_positions = fixed_positions if len(fixed_positions) < self.size // MOSTLY_FREE else None
        """Positions of the bytes with fixed bits; None where these are too many to be picked out."""

    def fits(self, data: bytes) -> bool:
        """Whether ``data`` is rows of this layout, back to back."""
        rows, rest = divmod(len(data), self.size)
        if rest:
            return False
        if self._fixed_positions is not None:
            return bool(self.fitting(data).all())
        return (self._bytes(data) & self.fixed_bits).tobytes() == self._template * rows

    def fitting(self, data: bytes) -> NDArray[np.bool_]:
        """Returns which of the rows in ``data``, all of this layout's size, have this layout. Shape [rows]."""
        fixed_positions = slice(None) if self._fixed_positions is None else self._fixed_positions
        template = np.frombuffer(self._template, np.uint8)[fixed_positions]
        fixed_bits = self._bytes(data)[:, fixed_positions] & self.fixed_bits[fixed_positions]
        fitting: NDArray[np.bool_] = (fixed_bits == template).all(axis=1)
        return fitting

    def table(self, data: bytes, start: int = 0, rows: int = -1) -> NDArray[np.void]:
        """Returns ``rows`` rows of this layout from ``start`` on, or all following rows, as read-only records."""
        return np.frombuffer(data, self._record, rows, start)

    def blank(self, rows: int) -> NDArray[np.void]:
        """Returns rows of this layout with every value zero, to be filled in."""
        return np.frombuffer(bytearray(self._template * rows), self._record)

    def _bytes(self, data: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(data, np.uint8).reshape(-1, self.size)


def entries(data: bytes, start: int, stop: int) -> Iterator[Entry]:
    """Yields the fields of the message at ``data[start:stop]``, which must be well-formed and without groups."""
    while start < stop:
        tag = start
        key, start = read_varint(data, start)
        wire_type = key & 7
        if wire_type == VARINT:
            _, end = read_varint(data, start)
        elif wire_type == LENGTH:
            length, start = read_varint(data, start)
            end = start + length
        elif wire_type in (FIXED32, FIXED64):
            end = start + (4 if wire_type == FIXED32 else 8)
        else:
            raise ValueError(f"wire type {wire_type} at byte {tag}")
        yield Entry(key >> 3, wire_type, start, end)
        start = end


def read_varints(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Reads the int32 values of varints of equal width. ``raw``: [rows, width]; returns [rows]."""
    width = raw.shape[1]
    if width == 1:
        return raw[:, 0].astype(np.int64)
    numbers = np.zeros(len(raw), np.int64)
    for byte in range(width):
        numbers |= (raw[:, byte] & 0x7F).astype(np.int64) << (7 * byte)
    return numbers.astype(np.int32).astype(np.int64)


def write_varints(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Writes non-negative numbers as varints of at most ``width`` bytes; a shorter one ends in zeros.

    Returns [rows, width].
    """
    if width == 1:
        return numbers.astype(np.uint8)[:, None]
    raw = np.empty((len(numbers), width), np.uint8)
    for byte in range(width):
        rest = numbers >> (7 * byte)
        raw[:, byte] = (rest & 0x7F) | ((rest > 0x7F) * 0x80)
    return raw


def varint_width(number: int) -> int:
    """Returns how many bytes a non-negative number takes as a varint."""
    return max(1, -(-number.bit_length() // 7))


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """Reads the unsigned number that begins at ``start``; returns it and where it stops.

    Raises:
        ValueError: it is longer than a number can be.
        IndexError: the data ends before it does.
    """
    number = shift = 0
    while True:
        byte = data[start]
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, start
        shift += 7
        if shift == 7 * LONGEST_VARINT:
            raise ValueError(f"a number of more than {LONGEST_VARINT} bytes")
