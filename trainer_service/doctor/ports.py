"""The process that listens on a port. Linux names it; elsewhere the user gets the command that does."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"


def holder_of(port: int, *, platform: str = sys.platform) -> str:
    """The process that listens on ``port``: its name and id, or how to find out; empty if it cannot be told."""
    if platform == "win32":
        return f"another process (which: netstat -ano | findstr :{port})"
    if platform != "linux":
        return f"another process (which: lsof -i :{port})"
    sockets = {f"socket:[{inode}]" for inode in _listening_sockets(port)}
    return next((_named(process) for process in _processes() if sockets & set(_files(process))), "")


def _listening_sockets(port: int) -> Iterator[str]:
    """Inodes of sockets that listen on ``port``; see proc(5)."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            address, state, inode = fields[1], fields[3], fields[9]
            if state == _LISTENING and int(address.rpartition(":")[2], 16) == port:
                yield inode


def _processes() -> Iterator[Path]:
    return (path for path in _PROC.iterdir() if path.name.isdigit())


def _files(process: Path) -> Iterator[str]:
    """Names of a process's open files; none of a process that is another user's, or gone."""
    folder = process / "fd"
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):
                yield os.readlink(folder / descriptor)


def _named(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    command = " ".join(words).strip()
    return f"process {process.name}" + (f" ({command[:100]})" if command else "")
