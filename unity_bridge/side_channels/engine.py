"""Trainer to simulator: screen, quality and time scale of the engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
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


class _Kind(enum.IntEnum):
    """The kind of a message: the int32 at its beginning."""

    SCREEN_RESOLUTION = 0
    QUALITY_LEVEL = 1
    TIME_SCALE = 2
    TARGET_FRAME_RATE = 3
    CAPTURE_FRAME_RATE = 4


def engine_records(settings: EngineConfiguration) -> list[SideChannelRecord]:
    """The settings as messages on the engine channel, one of each kind."""
    bodies = (
        BodyWriter().int32(_Kind.SCREEN_RESOLUTION).int32(settings.width).int32(settings.height),
        BodyWriter().int32(_Kind.QUALITY_LEVEL).int32(settings.quality_level),
        BodyWriter().int32(_Kind.TIME_SCALE).float32(settings.time_scale),
        BodyWriter().int32(_Kind.TARGET_FRAME_RATE).int32(settings.target_frame_rate),
        BodyWriter().int32(_Kind.CAPTURE_FRAME_RATE).int32(settings.capture_frame_rate),
    )
    return [SideChannelRecord(ENGINE_CONFIGURATION, writer.body()) for writer in bodies]


def apply_engine_message(settings: EngineConfiguration, body: bytes) -> EngineConfiguration:
    """The settings after a message on the engine channel.

    Raises:
        WireError: a kind that we do not know, or a number cut in the middle.
    """
    reader = BodyReader(body, "engine configuration")
    kind = reader.int32()
    match kind:
        case _Kind.SCREEN_RESOLUTION:
            return replace(settings, width=reader.int32(), height=reader.int32())
        case _Kind.QUALITY_LEVEL:
            return replace(settings, quality_level=reader.int32())
        case _Kind.TIME_SCALE:
            return replace(settings, time_scale=reader.float32())
        case _Kind.TARGET_FRAME_RATE:
            return replace(settings, target_frame_rate=reader.int32())
        case _Kind.CAPTURE_FRAME_RATE:
            return replace(settings, capture_frame_rate=reader.int32())
    raise WireError(f"engine configuration: expected a kind from 0 to {max(_Kind)}, got {kind}")
