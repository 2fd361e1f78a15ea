"""The folder of an experiment, in which one process at a time writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer_service.config import RunOptions
from trainer_service.errors import UserError
from trainer_service.runs.files import SaveError
from trainer_service.runs.layout import LOCK
from trainer_service.runs.lock import AlreadyLockedError, FileLock


@contextmanager
def held_folder(path: Path, kept: Path, kind: str, *, resume: bool) -> Iterator[None]:
    """Holds the folder of an experiment, which is made if it is missing.

    Args:
        path: the folder.
        kept: the file in it that an experiment to be resumed has.
        kind: of the experiment, in a word.
        resume: whether it is to be resumed.

    Raises:
        UserError: it is taken, missing against ``resume``, or another process writes there.
    """
    if resume and not kept.is_file():
        raise UserError(f"no {kind} in '{path}'. Remove --resume to begin a new one.")
    if not resume and path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
        raise UserError(
            f"'{path}' is taken. Use --resume to continue the {kind} there, or choose a new --run-id."
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK)
    except OSError as error:
        raise SaveError(path, error) from error
    except AlreadyLockedError as error:
        raise UserError(
            f"'{path}' is in use: process {error.holder} runs this {kind}. Stop it first."
        ) from None
    try:
        yield
    finally:
        lock.release()


def require_own_simulators(options: RunOptions, jobs: int, kind: str) -> None:
    """Raises UserError where runs, called a kind in messages, would share a simulator or a port."""
    if options.env_settings.env_path is None:
        raise UserError(f"env_settings.env_path: each {kind} needs simulators of its own: set it (--env)")
    ports = {"env_settings.base_port": options.env_settings.base_port, "metrics_port": options.metrics_port}
    if taken := [key for key, port in ports.items() if port is not None and jobs > 1]:
        raise UserError(f"{taken[0]}: expected none, as {jobs} {kind}s at a time cannot share a port")
