"""Films of episodes, recorded by bundled simulators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer_service.errors import UserError
from unity_bridge.programs.executables import Command
from unity_bridge.simulators.rendering.films import recording_problem


@dataclass(frozen=True, slots=True)
class FilmOptions:
    """The path and the length of a film."""

    path: Path
    """A .gif or .mp4 file."""

    episodes: int | None = None
    """Of the first agent; None is no limit."""

    seconds: float | None = None
    """In the scene's own time; None leaves it to the simulator."""

    def arguments(self, command: Command) -> list[str]:
        """Returns the arguments that record the film. Raises UserError if the simulator cannot record such a film."""
        limits = {"--record-episodes": (self.episodes, 1), "--record-seconds": (self.seconds, 0)}
        for flag, (given, least) in limits.items():
            if given is not None and not least <= given < float("inf"):
                raise UserError(f"{flag}: expected at least {least}, got {given}")
        if not command.is_bundled:
            raise UserError(
                f"--record: '{command.env}' is a program of its own; only bundled environments can be recorded"
            )
        if problem := recording_problem(self.path):
            raise UserError(f"--record: {problem}")
        flags = [
            word for flag, (given, _) in limits.items() if given is not None for word in (flag, str(given))
        ]
        return ["--record", str(self.path.absolute()), *flags]

    def modified_at(self) -> int | None:
        """The time when the file was written, to tell an earlier one from a new one; None where there is none."""
        return self.path.stat().st_mtime_ns if self.path.exists() else None


@contextmanager
def filming(film: FilmOptions | None) -> Iterator[None]:
    """A context in which a film is made, if one is wanted. Raises UserError at the end where it was not written."""
    earlier = None if film is None else film.modified_at()
    yield
    if film is not None and film.modified_at() == earlier:
        raise UserError(f"--record: the simulator ended without writing '{film.path}'")
