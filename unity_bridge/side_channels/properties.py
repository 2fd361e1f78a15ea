"""Named numbers in both directions, on a channel that simulators' own code may register under any id."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.side_channels.values import BodyReader, BodyWriter

FLOAT_PROPERTIES = UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7")
"""The id of a channel that was given no other."""


@dataclass(frozen=True, slots=True)
class FloatProperty:
    """A named number."""

    name: str
    """ASCII."""
    value: float
    """Travels as a float32."""


def property_record(message: FloatProperty, channel: UUID = FLOAT_PROPERTIES) -> SideChannelRecord:
    """The property as a message. Raises ValueError if the wire cannot carry it."""
    return SideChannelRecord(channel, BodyWriter().string(message.name).float32(message.value).body())


def parse_property(body: bytes) -> FloatProperty:
    """Parses a message on such a channel. Raises WireError if it is cut, or the name is no ASCII text."""
    reader = BodyReader(body, "float property")
    return FloatProperty(reader.string(), reader.float32())
