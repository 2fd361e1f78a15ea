"""Atomic writes: a file is either the old version or the new one, never half of each."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from trainer_service.errors import UserError

_TEMPORARY_NAME = re.compile(r"\..+\.\d+\.tmp")


class SaveError(UserError):
    """A file that could not be written: disk full, no permission. What stood there before is untouched."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or str(error)
        super().__init__(f"cannot write '{path}': {self.reason}")


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replaces ``path`` by ``data`` as one step that survives a crash or a power cut at any moment.

    The data goes to a temporary file in the same folder, which is made if it is missing, then to the disk,
    and only then takes the name. Text is written as UTF-8, newlines as they are.

    Raises:
        SaveError: naming the path and the reason; the previous file is intact, the temporary one removed.
    """
    content = data.encode() if isinstance(data, str) else data
    write_atomic_by(path, lambda file: file.write(content))


def write_atomic_by(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replaces ``path`` atomically by what ``write`` puts into the open temporary file.

    So the content need not be in memory as a whole.

    Raises:
        SaveError: as ``write_atomic`` does.
    """
    temporary = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise SaveError(path, error) from error
        raise
    _sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """Where a file is written before it takes its name. Two processes that write one file do so apart."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_leftovers(folder: Path) -> None:
    """Deletes the temporary files that killed writers left directly in ``folder``."""
    for path in folder.iterdir():
        if _TEMPORARY_NAME.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Makes a rename outlive a power cut, where the system can: Windows cannot open folders."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
