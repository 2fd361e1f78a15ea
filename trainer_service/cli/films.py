"""The films that ``evaluate --record`` lets bundled simulators make."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trainer_service.errors import UserError


def recording_arguments(env: str, parsed: argparse.Namespace) -> list[str]:
    """The simulator's arguments for a recording as a film."""
    from unity_bridge.simulators import BUNDLED_SCHEMES
    from unity_bridge.simulators.rendering.films import recording_problem

    target: Path | None = parsed.record
    if target is None:
        return []
    for flag, least in (("record_episodes", 1), ("record_seconds", 0)):
        if (given := getattr(parsed, flag)) is not None and not least <= given < float("inf"):
            name = flag.replace("_", "-")
            raise UserError(f"--{name}: expected at least {least}, got {given}")
    if env.partition(":")[0] not in BUNDLED_SCHEMES:
        raise UserError(
            f"--record: '{env}' is a program of its own; only bundled environments can be recorded"
        )
    if problem := recording_problem(target):
        raise UserError(f"--record: {problem}")
    limits = {"--record-episodes": parsed.record_episodes, "--record-seconds": parsed.record_seconds}
    flags = [word for flag, limit in limits.items() if limit is not None for word in (flag, str(limit))]
    return ["--record", str(target.absolute()), *flags]


def modified_at(path: Path | None) -> int | None:
    """The time when a file was written, to tell an earlier one from a new one; None where there is none."""
    return path.stat().st_mtime_ns if path is not None and path.exists() else None


def require_recording(path: Path | None, earlier: int | None) -> int:
    """Returns the exit code 0. Raises UserError where a film was asked for, and none was written."""
    if path is not None:
        if modified_at(path) == earlier:
            raise UserError(f"--record: the simulator ended without writing '{path}'")
        print(f"Recorded {path}", file=sys.stderr)
    return 0
