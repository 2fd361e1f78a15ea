"""How long a call takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def median_us(call: Callable[[], object], repetitions: int) -> float:
    """The median of so many calls, in microseconds, after a tenth as many that do not count."""
    for _ in range(max(1, repetitions // 10)):
        call()
    taken = []
    for _ in range(repetitions):
        started = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - started)
    return median(taken) / 1e3
