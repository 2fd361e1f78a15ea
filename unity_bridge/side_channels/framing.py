"""The framing of side channel messages in one payload.

A payload is any number of records side by side. One record is 16 bytes of channel id (a GUID in .NET's byte
order: the first three groups little-endian), the length of the body as a little-endian int32, and the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from unity_bridge.errors import WireError

_LENGTH = struct.Struct("<i")
_GUID_BYTES = 16
_HEADER_BYTES = _GUID_BYTES + _LENGTH.size


@dataclass(frozen=True, slots=True)
class SideChannelRecord:
    """One message on one channel."""

    channel: UUID

    body: bytes
    """On a channel of raw bytes, the message itself."""


def pack_records(records: Iterable[SideChannelRecord]) -> bytes:
    """The payload that carries the records in their order."""
    return b"".join(
        record.channel.bytes_le + _LENGTH.pack(len(record.body)) + record.body for record in records
    )


def packed_size(record: SideChannelRecord) -> int:
    """Bytes that the record takes in a payload."""
    return _HEADER_BYTES + len(record.body)


def unpack_records(payload: bytes) -> list[SideChannelRecord]:
    """The records of a payload in their order.

    Raises:
        WireError: the payload ends inside a record, or a length is negative.
    """
    records: list[SideChannelRecord] = []
    channels: dict[bytes, UUID] = {}  # few channels say much
    start = 0
    while start < len(payload):
        body_start = start + _HEADER_BYTES
        if body_start > len(payload):
            raise WireError(
                f"side channel record {len(records)}: expected {_HEADER_BYTES} bytes of id and length, "
                f"got {len(payload) - start}"
            )
        guid = payload[start : start + _GUID_BYTES]
        channel = channels.get(guid) or channels.setdefault(guid, UUID(bytes_le=guid))
        (length,) = _LENGTH.unpack_from(payload, start + _GUID_BYTES)
        if not 0 <= length <= len(payload) - body_start:
            raise WireError(
                f"side channel record {len(records)} (channel {channel}): says it has {length} bytes, "
                f"got {len(payload) - body_start}"
            )
        start = body_start + length
        records.append(SideChannelRecord(channel, payload[body_start:start]))
    return records
