"""The step rate of a behavior's agents."""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAST_S = 1.0
"""Seconds after which the steps since a summary give a meaningful rate, despite updates and large batches."""


class StepRate:
    """Agent steps per second, from one summary to the next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """clock: in seconds."""
        self._clock = clock
        self._before: float | None = None
        """The rate at the last summary."""
        self.restart(0)

    def restart(self, step: int) -> None:
        """Restarts the count at this step and time."""
        self._start = (step, self._clock())

    def summarize(self, step: int) -> float:
        """Returns the rate since the last summary, and restarts the count."""
        self._before = self._since_summary(step)
        self.restart(step)
        return self._before

    def now(self, step: int, *, finished: bool = False) -> float:
        """Returns the rate for display: since the last summary, or at that summary if too recent or finished."""
        is_new = finished or self._clock() - self._start[1] < _LEAST_S
        return self._before if is_new and self._before is not None else self._since_summary(step)

    def _since_summary(self, step: int) -> float:
        before, then = self._start
        return (step - before) / max(self._clock() - then, 1e-9)
