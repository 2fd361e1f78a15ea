"""A lock for the one writer of a folder, dropped by the operating system when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # Windows forbids others to read what is locked, so the lock lies far behind the process id.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HELD_BY_ANOTHER = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}


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
        self._descriptor = -1
        try:
            while not self._claim():
                self._close()
        except (AlreadyLockedError, OSError):
            self._close()
            raise

    def release(self) -> None:
        """Gives the claim up and removes the file. Once is enough, more does no harm."""
        if self._descriptor < 0:
            return
        if sys.platform != "win32":
            self._remove()  # while still held, so that nobody's newer file is taken away
        self._close()
        if sys.platform == "win32":
            self._remove()  # an open file cannot be removed there

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _claim(self) -> bool:
        """Locks the file; False if its last holder removed it between our open and our lock."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(self._descriptor)
        except OSError as error:
            if error.errno in _HELD_BY_ANOTHER:
                raise AlreadyLockedError(_holder(self._path)) from None
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, b"%d\n" % os.getpid())
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False


def _holder(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
