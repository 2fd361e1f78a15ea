"""Trainer to simulator: screen, quality and time scale of the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from unity_bridge.errors import WireError
from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.side_channels.values import BodyReader, BodyWriter

ENGINE_CONFIGURATION = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfiguration:
    """Settings of a Unity build's rendering and of the speed of its clock."""

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


_KINDS: tuple[tuple[str, ...], ...] = (
    ("width", "height"),
    ("quality_level",),
    ("time_scale",),
    ("target_frame_rate",),
    ("capture_frame_rate",),
)
"""The settings in a message of each kind, which is the int32 at its beginning. All are int32 but the time scale."""
_FLOATS = frozenset({"time_scale"})


def engine_records(settings: EngineConfiguration) -> list[SideChannelRecord]:
    """The settings as messages on the engine channel, one of each kind."""
    records = []
    for kind, names in enumerate(_KINDS):
        writer = BodyWriter().int32(kind)
        for name in names:
            write = writer.float32 if name in _FLOATS else writer.int32
            write(getattr(settings, name))
        records.append(SideChannelRecord(ENGINE_CONFIGURATION, writer.body()))
    return records


def apply_engine_message(settings: EngineConfiguration, body: bytes) -> EngineConfiguration:
    """The settings after a message on the engine channel.

    Raises:
        WireError: a kind that we do not know, or a number cut in the middle.
    """
    reader = BodyReader(body, "engine configuration")
    kind = reader.int32()
    if not 0 <= kind < len(_KINDS):
        raise WireError(f"engine configuration: expected a kind from 0 to {len(_KINDS) - 1}, got {kind}")
    changed: dict[str, Any] = {
        name: reader.float32() if name in _FLOATS else reader.int32() for name in _KINDS[kind]
    }
    return replace(settings, **changed)
