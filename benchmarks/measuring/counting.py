"""Exchanges, counted by the simulators themselves, and the CPU time of the trainer that serves them.

Trainers count and time in ways of their own. A simulator's calls mean the same with every trainer, and the CPU
time of an answer changes far less than its speed where other programs want the same cores.

python -m measuring.counting FOLDER MODULE [ARGUMENT ...] runs a simulator and counts in FOLDER.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unity_bridge.simulators import client

_COUNT = struct.Struct("<q")

_PROCESSES = Path("/proc")
_SESSION, _USER, _SYSTEM = 3, 11, 12
"""Places in /proc/PID/stat, counted from the process's state on: see proc(5)."""


@dataclass(frozen=True, slots=True)
class Served:
    """Exchanges and CPU time of a trainer since its start."""

    exchanges: int
    """With all of its simulators."""

    cpu_s: float
    """User and system time of its processes, on all cores; simulators have their own."""


class Meter:
    """Reads what a trainer has done."""

    def __init__(self, trainer: int, counts: Path) -> None:
        """trainer: the process that leads its session. counts: the folder in which its simulators count."""
        self._trainer = trainer
        self._counts = counts

    def read(self) -> Served | None:
        """The present counts; None where the system has no /proc."""
        if not _PROCESSES.is_dir():
            return None
        counts = {int(file.name): file.read_bytes() for file in self._counts.iterdir()}
        exchanges = sum(_COUNT.unpack(count)[0] for count in counts.values() if count)
        ticks = sum(_ticks_of_session(self._trainer, but=counts))
        return Served(exchanges, ticks / os.sysconf("SC_CLK_TCK"))


def _ticks_of_session(session: int, but: Any) -> Iterator[int]:
    for process in _PROCESSES.iterdir():
        if not process.name.isdecimal() or int(process.name) in but:
            continue
        try:
            # Its name stands in parentheses and may hold anything.
            stat = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        if int(stat[_SESSION]) == session:
            yield int(stat[_USER]) + int(stat[_SYSTEM])


def counted(exchange: Callable[[bytes], bytes], file: Path) -> Callable[[bytes], bytes]:
    """A way to the trainer that writes into a file how often it was taken."""
    file.write_bytes(_COUNT.pack(0))
    with file.open("r+b") as opened:
        memory = mmap.mmap(opened.fileno(), _COUNT.size)
    taken = 0

    def call(data: bytes) -> bytes:
        nonlocal taken
        taken += 1
        _COUNT.pack_into(memory, 0, taken)
        return exchange(data)

    return call


def main() -> None:
    """Runs a simulator's module with its arguments, and counts what it says to the trainer."""
    folder, module, *arguments = sys.argv[1:]
    converse = client.converse

    def counting(exchange: Callable[[bytes], bytes], *given: Any, **named: Any) -> str:
        return converse(counted(exchange, Path(folder) / str(os.getpid())), *given, **named)

    client.converse = counting
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
