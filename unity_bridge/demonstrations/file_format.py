"""The format of a .demo file: a header, a behavior's declaration, and its rows, each with its length before it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError

from unity_bridge.codec.rows import varint_width
from unity_bridge.errors import DemonstrationError
from unity_bridge.wire.brain_parameters_pb2 import BrainParametersProto
from unity_bridge.wire.demonstration_meta_pb2 import DemonstrationMetaProto

HEADER_SIZE = 33
"""Bytes kept free for the head and its length; it is written last."""

_VERSIONS = (0, 1)
_MOST_LENGTH_BYTES = 5
_BUFFER = 1 << 18
_SHORTEST_ROW = 8
"""Bytes. One number of one sensor takes more, and a file of shorter rows is nothing but rows to be counted."""


@dataclass(frozen=True, slots=True)
class FileIndex:
    """An index of a file that was read from end to end, without its rows."""

    meta: DemonstrationMetaProto
    """The header. Rows are steps and final states together, 0 where the recording was never closed; closing it counts
    as an end of an episode, too."""

    brain: BrainParametersProto

    first_row: int
    """The offset of the first row, in bytes."""

    rows: int

    has_copy: bool
    """Whether the header stands at the end once more, as writers leave it that shift actions by a row."""


def index_file(path: Path) -> FileIndex:
    """Indexes a file without reading its rows.

    Raises:
        DemonstrationError: it is no recording, of an unknown version, or ends too early.
    """
    with _opened(path) as file:
        stream = _Stream(file, path)
        meta = _read_header(stream)
        brain = _read_brain(stream)
        first_row = stream.size - stream.left
        rows = _skip_rows(stream, meta)
        rest = stream.take(min(stream.left, HEADER_SIZE + 1))
    if rest and not _is_copy(rest, meta):
        raise DemonstrationError(
            f"'{path}': expected its end or a copy of its head after {rows} rows, got other bytes"
        )
    return FileIndex(meta, brain, first_row, rows, has_copy=bool(rest))


def read_rows(path: Path, index: FileIndex) -> Iterator[bytes]:
    """The rows as they lie there, one after the other: serialized AgentInfoActionPairProtos.

    Raises:
        DemonstrationError: the file is not the one any more that was looked through.
    """
    with _opened(path) as file:
        stream = _Stream(file, path)
        stream.skip(index.first_row)
        for row in range(index.rows):
            yield stream.take(stream.length(f"row {row}"))


def encode_header(meta: DemonstrationMetaProto) -> bytes:
    """The head with its length, as it stands at the beginning of a file, filled up with zeros."""
    return delimited(meta.SerializeToString()).ljust(HEADER_SIZE, b"\0")


def delimited(message: bytes) -> bytes:
    """A message with its length before it."""
    length = len(message)
    width = varint_width(length)
    head = bytes((length >> 7 * byte) & 0x7F | (0x80 if byte < width - 1 else 0) for byte in range(width))
    return head + message


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=_BUFFER)
    except OSError as error:
        raise DemonstrationError(f"cannot read '{path}': {error.strerror or error}") from error


class _Stream:
    """An open file from its beginning on, which knows how much of it is left."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.path = path
        self.size = self.left = os.fstat(file.fileno()).st_size
        self._file = file

    def take(self, length: int) -> bytes:
        """The next bytes."""
        self.left -= length
        return self._file.read(length)

    def skip(self, length: int) -> None:
        """Skips the next bytes."""
        self.left -= length
        self._file.seek(length, os.SEEK_CUR)

    def length(self, what: str) -> int:
        """The length of the message that follows, which is all there.

        Raises:
            DemonstrationError: it is not; or there is no length. ``what`` names the message.
        """
        length = 0
        for shift in range(0, 7 * _MOST_LENGTH_BYTES, 7):
            read = self.take(1)
            if not read:
                raise DemonstrationError(f"'{self.path}': the file ends within the length of {what}")
            length |= (read[0] & 0x7F) << shift
            if read[0] < 0x80:
                break
        else:
            raise DemonstrationError(f"'{self.path}': expected the length of {what}, got other bytes")
        if length > self.left:
            raise DemonstrationError(
                f"'{self.path}': expected {length} bytes of {what}, the file ends after {self.left} of them"
            )
        return length


def _read_header(stream: _Stream) -> DemonstrationMetaProto:
    head = stream.take(min(stream.left, HEADER_SIZE))
    if len(head) < HEADER_SIZE:
        raise DemonstrationError(
            f"'{stream.path}': expected a recording (.demo), which begins with {HEADER_SIZE} bytes about itself, "
            f"got a file of {len(head)} bytes"
        )
    length = head[0]
    try:
        if length >= HEADER_SIZE:
            raise DecodeError
        proto = DemonstrationMetaProto.FromString(head[1 : 1 + length])
    except DecodeError:
        raise DemonstrationError(
            f"'{stream.path}': expected a recording (.demo), got a file that begins otherwise"
        ) from None
    if proto.api_version not in _VERSIONS:
        raise DemonstrationError(
            f"'{stream.path}': expected a recording of version 0 or 1, got version {proto.api_version}"
        )
    if proto.number_steps < 0 or proto.number_episodes < 0:
        raise DemonstrationError(
            f"'{stream.path}': expected counts in its head, "
            f"got {proto.number_steps} steps and {proto.number_episodes} episodes"
        )
    return proto


def _read_brain(stream: _Stream) -> BrainParametersProto:
    if not stream.left:
        raise DemonstrationError(
            f"'{stream.path}': expected a behavior's declaration, the file ends before it"
        )
    data = stream.take(stream.length("the behavior's declaration"))
    try:
        brain = BrainParametersProto.FromString(data)
    except DecodeError:
        raise DemonstrationError(
            f"'{stream.path}': expected a behavior's declaration, got {len(data)} other bytes"
        ) from None
    if not brain.brain_name:
        raise DemonstrationError(f"'{stream.path}': expected the name of a behavior, got none")
    return brain


def _skip_rows(stream: _Stream, meta: DemonstrationMetaProto) -> int:
    """Moves behind the last row; returns how many there are."""
    rows = 0
    # A header without any count was never finished: the writer left without closing the file.
    closed = meta.number_steps or meta.number_episodes
    while stream.left if not closed else rows < meta.number_steps:
        if not stream.left:
            raise DemonstrationError(
                f"'{stream.path}': expected the {meta.number_steps} rows that its head promises, "
                f"the file ends after {rows}"
            )
        length = stream.length(f"row {rows}")
        if length < _SHORTEST_ROW:
            raise DemonstrationError(
                f"'{stream.path}': expected an observation in row {rows}, got {length} bytes"
            )
        stream.skip(length)
        rows += 1
    return rows


def _is_copy(rest: bytes, meta: DemonstrationMetaProto) -> bool:
    """Whether the bytes behind the last row are the head once more, without its length."""
    try:
        copy = DemonstrationMetaProto.FromString(rest)
    except DecodeError:
        return False
    return len(rest) < HEADER_SIZE and (copy.number_steps, copy.number_episodes) == (
        meta.number_steps,
        meta.number_episodes,
    )
