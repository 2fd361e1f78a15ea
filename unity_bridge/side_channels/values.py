"""Readers and writers of side channel bodies: little-endian numbers and ASCII text, one after another."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Self

from unity_bridge.errors import WireError

_BOOL = struct.Struct("<?")
_INT32 = struct.Struct("<i")
_FLOAT32 = struct.Struct("<f")


class BodyWriter:
    """Builds a body value by value. Raises ValueError for a value that the wire format cannot hold."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def bool(self, value: bool) -> Self:
        self._parts.append(_BOOL.pack(value))
        return self

    def int32(self, value: int) -> Self:
        if not -(2**31) <= value < 2**31:
            raise ValueError(f"expected a number that fits into 32 bits, got {value}")
        self._parts.append(_INT32.pack(value))
        return self

    def float32(self, value: float) -> Self:
        try:
            self._parts.append(_FLOAT32.pack(value))
        except OverflowError:
            raise ValueError(f"expected a number that fits into a 32-bit float, got {value}") from None
        return self

    def float32_list(self, values: Iterable[float]) -> Self:
        values = list(values)
        self.int32(len(values))
        for value in values:
            self.float32(value)
        return self

    def string(self, value: str) -> Self:
        if not value.isascii():
            raise ValueError(f"expected ASCII text, got '{value}'")
        self.int32(len(value))
        self._parts.append(value.encode("ascii"))
        return self

    def body(self) -> bytes:
        """The bytes of all that was written."""
        return b"".join(self._parts)


class BodyReader:
    """Reads a body value by value, in the order of writing.

    At or past its end every value is its type's default, so newer readers understand shorter messages; text that
    is cut is just shorter. What cannot have been meant raises WireError: a number cut in the middle, a negative
    length, a list longer than the rest, text that is no ASCII.
    """

    def __init__(self, body: bytes, where: str) -> None:
        self.where = where
        """The name of the message in errors."""
        self._body = body
        self._offset = 0

    def bool(self) -> bool:
        """False at the end."""
        return bool(self._number(_BOOL, "a bool"))

    def int32(self) -> int:
        """0 at the end."""
        return int(self._number(_INT32, "an int32"))

    def float32(self) -> float:
        """0 at the end."""
        return float(self._number(_FLOAT32, "a float32"))

    def float32_list(self) -> list[float]:
        """Empty at the end."""
        count = self.int32()
        left = len(self._body) - self._offset
        if not 0 <= count * _FLOAT32.size <= left:
            raise WireError(f"{self.where}: a list says it has {count} floats, got {left} bytes")
        values = struct.unpack_from(f"<{count}f", self._body, self._offset)
        self._offset += count * _FLOAT32.size
        return list(values)

    def string(self) -> str:
        """Empty at the end."""
        length = self.int32()
        if length < 0:
            raise WireError(f"{self.where}: a text says it has {length} bytes")
        text = self._body[self._offset : self._offset + length]
        self._offset += length
        if not text.isascii():
            raise WireError(f"{self.where}: expected ASCII text, got {text[:40]!r}")
        return text.decode("ascii")

    def _number(self, kind: struct.Struct, name: str) -> float:
        left = len(self._body) - self._offset
        if left <= 0:
            return 0
        if left < kind.size:
            raise WireError(f"{self.where}: expected {kind.size} bytes of {name}, got {left}")
        (value,) = kind.unpack_from(self._body, self._offset)
        self._offset += kind.size
        return value  # type: ignore[no-any-return]  # struct knows no types
