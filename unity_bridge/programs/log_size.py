"""A limit on the disk that one simulator's log takes, however much it prints."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 64 * 2**20
"""Bytes of a log from which its middle is cut out."""

_HEAD, _TAIL = 64 * 2**10, 2**20
"""Bytes that stay: how the program began, and what it printed last."""


def cut_middle(log: Path, most_bytes: int = MOST_BYTES, head: int = _HEAD, tail: int = _TAIL) -> bool:
    """Cuts the middle out of a log that takes too much of the disk, and says so in it. Returns whether it did.

    Its program may continue writing meanwhile. One that does not append leaves a hole instead, which takes no disk.
    """
    try:
        if _bytes_on_disk(log) <= most_bytes:
            return False
        with log.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(head, size - tail))
            last = file.read(tail)
            file.truncate(head)
            file.seek(0, os.SEEK_END)
            file.write(b"\n[... cut here: this log may take %d bytes ...]\n" % most_bytes + last)
    except OSError:
        return False  # it is gone, or the disk is full; the program's own writes fail likewise
    return True


def _bytes_on_disk(path: Path) -> int:
    status = path.stat()
    return status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size
