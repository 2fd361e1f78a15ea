"""A lock for the one writer of a folder, dropped by the operating system when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import filelock

_CANNOT_LOCK = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_LOOK_S = 0.1
"""Seconds between two looks at a lock."""
_HOLDER = 1
"""Position of the holder's process id in the file. On Windows no other process can read the first byte."""


class AlreadyLockedError(Exception):
    """The lock is held by another living process."""

    def __init__(self, holder: int | None) -> None:
        self.holder = holder
        """Its process id, None where it could not be read."""
        super().__init__(f"locked by process {holder}")


class FileLock:
    """An exclusive claim, held from construction to ``release`` or to the end of the process.

    A file left by a killed process claims nothing: not the file counts, but the lock on it. On file systems
    that cannot lock, every claim succeeds.

    Raises:
        AlreadyLockedError: another process, or this one, holds it.
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = filelock.FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise AlreadyLockedError(holder_of_lock(path)) from None
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise
        with path.open("r+b", buffering=0) as file:
            file.seek(_HOLDER)
            file.write(b"%d\n" % os.getpid())

    def release(self) -> None:
        """Gives the claim up and removes the file. Once is enough, more does no harm."""
        if not self._lock.is_locked:
            return
        if sys.platform != "win32":
            self._remove()  # while still held, so that nobody's newer file is taken away
        self._lock.release()
        if sys.platform == "win32":
            self._remove()  # an open file cannot be removed there

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()


def holder_of_lock(path: Path) -> int | None:
    """The process id that stands in a lock's file; None where there is none. It may be left over."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(_HOLDER)
            return int(file.readline())
    except (OSError, ValueError):
        return None


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock of a file. A leftover of a killed one is removed."""
    if not path.is_file():
        return False
    try:
        FileLock(path).release()
    except AlreadyLockedError:
        return True
    except OSError:
        return False
    return False


def await_release(path: Path, timeout_s: float, is_stopped: Callable[[], bool]) -> None:
    """Waits until no process holds the lock of a file, the time is over, or the wait is stopped."""
    deadline = time.monotonic() + timeout_s
    while is_locked(path) and not is_stopped() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
