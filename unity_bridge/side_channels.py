"""Side channels: small messages that ride along with the exchanges, outside observations and actions.

A payload is any number of records side by side. One record is 16 bytes of channel id (a GUID in .NET's byte
order: the first three groups little-endian), the length of the body as a little-endian int32, and the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from unity_bridge.errors import WireError

ENGINE_CONFIGURATION = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
"""Trainer to simulator: screen, quality and time scale of the engine."""

_LENGTH = struct.Struct("<i")
_GUID_BYTES = 16
_HEADER_BYTES = _GUID_BYTES + _LENGTH.size


@dataclass(frozen=True, slots=True)
class SideChannelRecord:
    """One message on one channel."""

    channel: UUID
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a Unity build shall draw and how fast its clock shall run."""

    width: int = 84
    """Pixels."""

    height: int = 84
    """Pixels."""

    quality_level: int = 5
    """Index into the build's own list of quality settings."""

    time_scale: float = 20.0
    """Simulated seconds per second; 1 is real time."""

    target_frame_rate: int = -1
    """Frames per second; −1 draws as fast as possible."""

    capture_frame_rate: int = 60
    """Frames per simulated second, drawn at even distances."""


def pack_records(records: Iterable[SideChannelRecord]) -> bytes:
    """The payload that carries the records in their order."""
    return b"".join(
        record.channel.bytes_le + _LENGTH.pack(len(record.body)) + record.body for record in records
    )


def unpack_records(payload: bytes) -> list[SideChannelRecord]:
    """The records of a payload in their order.

    Raises:
        WireError: the payload ends inside a record, or a length is negative.
    """
    records: list[SideChannelRecord] = []
    start = 0
    while start < len(payload):
        body_start = start + _HEADER_BYTES
        if body_start > len(payload):
            raise WireError(
                f"side channel record {len(records)}: expected {_HEADER_BYTES} bytes of id and length, "
                f"got {len(payload) - start}"
            )
        channel = UUID(bytes_le=payload[start : start + _GUID_BYTES])
        (length,) = _LENGTH.unpack_from(payload, start + _GUID_BYTES)
        if not 0 <= length <= len(payload) - body_start:
            raise WireError(
                f"side channel record {len(records)} (channel {channel}): says it has {length} bytes, "
                f"got {len(payload) - body_start}"
            )
        start = body_start + length
        records.append(SideChannelRecord(channel, payload[body_start:start]))
    return records


def engine_records(settings: EngineSettings) -> list[SideChannelRecord]:
    """The settings as messages on the engine channel, each an int32 kind before its values."""
    bodies = (
        struct.pack("<iii", 0, settings.width, settings.height),
        struct.pack("<ii", 1, settings.quality_level),
        struct.pack("<if", 2, settings.time_scale),
        struct.pack("<ii", 3, settings.target_frame_rate),
        struct.pack("<ii", 4, settings.capture_frame_rate),
    )
    return [SideChannelRecord(ENGINE_CONFIGURATION, body) for body in bodies]
