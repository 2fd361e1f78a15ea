"""The envelope of a message, and its agents' rows as bytes.

The protobuf library reads it, except for long messages: it copies every row, and then a few bytes for each of many rows
take gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from unity_bridge.codec.protocol import LARGEST_HANDSHAKE
from unity_bridge.codec.rows import LENGTH, Entry, Row, entries, read_varint
from unity_bridge.errors import WireError
from unity_bridge.wire.row_view_pb2 import RowViewMessage

LONG_MESSAGE = 1 << 20
"""Bytes of a message that may take as long to read as thousands of others."""

MOST_ROWS = 1 << 17
"""Most rows of agents in one message, of all behaviors: two for each of 65 536 agents. Rows that are as unlike as they
can be are read at fifty thousand a second."""

MOST_FIELDS = 1 << 14
"""Most fields around the rows of a long message: a dozen, and three for each behavior."""

_HEADER, _OUTPUT = 1, 2
_RL_OUTPUT, _DESCRIPTIONS = 1, 2
_AGENT_INFOS, _SIDE_CHANNEL = 2, 3
_KEY, _ROWS = 1, 2
_ROW_TAG = 1 << 3 | LENGTH


class Envelope(NamedTuple):
    """A message whose agents are still bytes."""

    message: RowViewMessage
    """All that a trainer reads of it but the agents; those of a short message are in it, too."""

    rows: Sequence[tuple[str, Sequence[Row]]]
    """Behaviors with agents and their serialized AgentInfoProtos, in alphabetical order: a protobuf map has none."""


def parse(data: bytes) -> RowViewMessage:
    """Returns a message with all that is in it.

    Raises:
        WireError: it is no UnityMessageProto.
    """
    try:
        return RowViewMessage.FromString(data)
    except DecodeError as error:
        raise _no_message(data) from error


def open_envelope(data: bytes) -> Envelope:
    """Returns the envelope of a message. The rows of a long one are views of the message.

    Raises:
        WireError: it is no UnityMessageProto, or holds more than a simulator has to say.
    """
    if len(data) <= LONG_MESSAGE:
        message = parse(data)
        infos = message.unity_output.rl_output.agentInfos
        _require_few(sum(len(infos[behavior].value) for behavior in infos))
        return Envelope(message, _sorted({behavior: list(infos[behavior].value) for behavior in infos}))
    long = _LongMessage(data)
    try:
        long.read()
    except (DecodeError, IndexError, ValueError) as error:
        raise _no_message(data) from error
    return Envelope(long.message, _sorted(long.rows))


class _LongMessage:
    """A long message that is parsed in one pass, without copying a row.

    Repeated fields are merged, as protobuf merges them. Fields that no trainer reads are skipped.
    """

    def __init__(self, data: bytes) -> None:
        self.message = RowViewMessage()
        self.rows: dict[str, list[memoryview]] = {}
        self._data = data
        self._view = memoryview(data)
        self._fields = self._rows = 0

    def read(self) -> None:
        """Reads all of it; raises ValueError, IndexError or DecodeError where it is no message."""
        for field in self._fields_of(0, len(self._data)):
            if field.number == _HEADER:
                self.message.header.MergeFromString(self._bytes(field))
            elif field.number == _OUTPUT:
                self.message.unity_output.SetInParent()
                self._read_output(field)

    def _read_output(self, output: Entry) -> None:
        described = 0
        for field in self._fields_of(output.start, output.stop):
            if field.number == _RL_OUTPUT:
                self.message.unity_output.rl_output.SetInParent()
                self._read_rl_output(field)
            elif field.number == _DESCRIPTIONS:
                described += field.stop - field.start
                if described > LARGEST_HANDSHAKE:
                    raise WireError(
                        f"expected descriptions of {LARGEST_HANDSHAKE} bytes at most, got {described}"
                    )
                self.message.unity_output.rl_initialization_output.MergeFromString(self._bytes(field))

    def _read_rl_output(self, output: Entry) -> None:
        for field in self._fields_of(output.start, output.stop):
            if field.number == _AGENT_INFOS:
                self._read_agents(field)
            elif field.number == _SIDE_CHANNEL:
                self.message.unity_output.rl_output.side_channel = self._bytes(field)

    def _read_agents(self, infos: Entry) -> None:
        behavior, rows = "", list[memoryview]()
        for field in self._fields_of(infos.start, infos.stop, of_any_type=True):
            kind = (field.number, field.wire_type)
            if kind == (_KEY, LENGTH):
                behavior = self._bytes(field).decode()
            elif kind == (_ROWS, LENGTH):
                self._read_rows(field, rows)
            else:  # the protobuf library passes over an entry of a map with anything else in it
                return
        self.rows[behavior] = rows

    def _read_rows(self, field: Entry, rows: list[memoryview]) -> None:
        """Adds the rows in a field. There may be many: the usual ones are found without an Entry for each."""
        data, start, stop = self._data, field.start, field.stop
        while start < stop:
            if data[start] == _ROW_TAG:
                size, begin = read_varint(data, start + 1)
                start = begin + size
                rows.append(self._view[begin:start])
                if start > stop:
                    raise ValueError("a row that ends beyond its list")
                self._rows += 1
                _require_few(self._rows)
            else:
                start = next(self._fields_of(start, stop, of_any_type=True)).stop

    def _fields_of(self, start: int, stop: int, *, of_any_type: bool = False) -> Iterator[Entry]:
        """Yields the fields within a field that may be messages, texts or bytes, or all."""
        for entry in entries(self._data, start, stop):
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise WireError(f"expected at most {MOST_FIELDS} fields beside rows of agents, got more")
            if entry.stop > stop or not entry.number:
                raise ValueError(f"field {entry.number} ends beyond its message")
            if of_any_type or entry.wire_type == LENGTH:
                yield entry

    def _bytes(self, field: Entry) -> bytes:
        return self._data[field.start : field.stop]


def _no_message(data: bytes) -> WireError:
    return WireError(f"expected a UnityMessageProto, got {len(data)} bytes that are none")


def _require_few(rows: int) -> None:
    if rows > MOST_ROWS:
        raise WireError(f"expected at most {MOST_ROWS} rows of agents in one message, got {rows}")


def _sorted(rows: Mapping[str, Sequence[Row]]) -> list[tuple[str, Sequence[Row]]]:
    return [(behavior, rows[behavior]) for behavior in sorted(rows) if rows[behavior]]
