"""The cores of this machine, and their division among processes."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """``OMP_NUM_THREADS`` where it is set, as on a machine that is shared; else the number of cores there are."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_of_each(processes: int) -> int:
    """Cores for each of several processes on this machine: ``OMP_NUM_THREADS`` where it is set, else its share."""
    given = os.environ.get("OMP_NUM_THREADS", "").isdecimal()
    return usable_cores() if given else max(usable_cores() // processes, 1)
