"""Atomic writes: a file is either the old version or the new one, never half of each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from trainer_service.errors import UserError

_TEMPORARY_NAME = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.tmp")
_COPY_BYTES = 2**20


class SaveError(UserError):
    """A file that could not be written: disk full, no permission. What stood there before is untouched."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or str(error)
        super().__init__(f"cannot write '{path}': {self.reason}")


def with_short_paths(text: str) -> str:
    """Returns a message whose paths below the working folder begin there, as users type them.

    The paths of a run are absolute, because an environment in this process may change the working folder.
    """
    with contextlib.suppress(OSError):  # the folder was removed
        return re.sub(rf"(?<![^\s'\"]){re.escape(os.path.join(os.getcwd(), ''))}(?=[^\s'\"])", "", text)
    return text


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
    """Replaces ``path`` atomically by a temporary file that ``write`` fills.

    So the content need not be in memory as a whole.

    Raises:
        SaveError: as ``write_atomic`` does.
    """
    with Replacement() as files:
        files.write(path, write)


class Replacement:
    """A context in which files are written under temporary names; at its end they take their own, in their order.

    So files of one moment replace those of an earlier one within microseconds, whatever it took to write them.
    Where anything fails before, what stood there is intact and the temporary files are removed.
    """

    def __init__(self) -> None:
        self._temporary: dict[Path, Path] = {}
        """The temporary file of each path, in the order of writing."""
        self._afterwards: list[Callable[[], object]] = []
        """Callbacks for when all files have their names."""

    def write(self, path: Path, write: Callable[[BinaryIO], object]) -> Path:
        """Writes what will be at ``path`` and syncs it. Returns where it is until then. Raises SaveError."""
        temporary = self._temporary[path] = temporary_path(path)
        try:
            if not path.parent.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                _grant_owner(path.parent, stat.S_IRWXU)
            with temporary.open("wb") as file:
                _grant_owner(temporary, stat.S_IRUSR | stat.S_IWUSR)
                write(file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SaveError(path, error) from error
        return temporary

    def copy(self, path: Path, source: Path) -> None:
        """Writes a copy of a file, to be at ``path``: one of its own, so damage to one leaves the other good.

        Raises SaveError.
        """

        def write(file: BinaryIO) -> None:
            with source.open("rb") as content:
                shutil.copyfileobj(content, file, _COPY_BYTES)

        self.write(path, write)

    def then(self, act: Callable[[], object]) -> None:
        """Calls this when all files have their names: whatever they replace is not needed any more."""
        self._afterwards.append(act)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self._rename()
                for act in self._afterwards:
                    act()
        finally:
            for temporary in self._temporary.values():
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def _rename(self) -> None:
        for path, temporary in self._temporary.items():
            try:
                os.replace(temporary, path)
            except OSError as error:
                raise SaveError(path, error) from error
        for folder in {path.parent for path in self._temporary}:
            sync_folder(folder)


def _grant_owner(path: Path, rights: int) -> None:
    """Gives the owner these rights: an environment in this process may set a mask while another thread saves."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & rights != rights:
        path.chmod(mode | rights)


def object_in(text: bytes) -> dict[str, Any] | None:
    """The object in a JSON text; None where there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one without the file. Raises UserError for a file that is damaged."""
    try:
        value = object_in(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error
    if value is None:
        raise UserError(f"'{path}' is damaged: expected a JSON object")
    return value


def temporary_path(path: Path) -> Path:
    """Where a file is written before it takes its name. Two processes that write one file do so apart."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


class Leftover(NamedTuple):
    """A temporary file that a killed process left."""

    path: Path
    name: str
    """The name of the file that it was to replace."""
    process: int
    """The id of the process that wrote it."""


def leftovers(folder: Path) -> list[Leftover]:
    """The temporary files directly in ``folder``."""
    found = ((path, _TEMPORARY_NAME.fullmatch(path.name)) for path in sorted(folder.iterdir()))
    return [Leftover(path, match["name"], int(match["process"])) for path, match in found if match]


def remove_leftovers(folder: Path) -> None:
    """Deletes the temporary files that killed processes left directly in ``folder``."""
    for each in leftovers(folder):
        each.path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes a rename outlive a power cut, where the system can: Windows cannot open folders."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
