"""Spinning before sleeping: for simulators that answer sooner than a sleeping thread is woken on an idle core."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from unity_bridge.fast_paths import fast_paths_allowed

_LONGEST_THINK_S = 1.5e-3
"""Simulators that take longer gain too little: a wake-up is a tenth of their step, and a Unity build's takes 5 ms."""

_LOOKS_AHEAD = 2.0
"""Spans of a think time until the reader sleeps after all."""

_WEIGHT = 0.1
_EVALUATED_S = 0.05
_LEAST_SHARE = 0.8
"""Of the time of spinning, what must be spent well: the thread had a core, and found something before it slept."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Spinner:
    """Polls before the reader sleeps, for as long as polling pays.

    Not at all where simulators think long, where a core is all that there is, or where others want the cores. Then the
    thread loses its own while it spins, or the simulator waits for one so long that it spins in vain; it sleeps at
    once for a second, and if that was no passing thing for up to a minute.
    """

    def __init__(self, cores: int | None = None) -> None:
        """cores: that this process may use; None: as many as the system says."""
        self._may = fast_paths_allowed() and (_cores() if cores is None else cores) > 1
        self._think = 1.0
        """Moving average of think times in seconds, each at most 1."""
        self._spun = self._well = 0.0
        self._pause, self._paused_until = _FIRST_PAUSE_S, 0.0

    def thought(self, seconds: float) -> None:
        """Takes in a simulator's think time: from an answer's departure to the next message."""
        self._think += _WEIGHT * (min(seconds, 1.0) - self._think)

    def span(self) -> float:
        """Seconds to spin at most from now on; 0 for sleeping at once."""
        if not self._may or self._think > _LONGEST_THINK_S or time.perf_counter() < self._paused_until:
            return 0.0
        return _LOOKS_AHEAD * self._think

    def spin(self, look: Callable[[], Any], timeout: float) -> Any:
        """Polls ``look`` for up to ``span`` and ``timeout`` seconds. Returns its first result, or None."""
        span = min(self.span(), timeout)
        if span <= 0.0:
            return None
        start, had = time.perf_counter(), time.thread_time()
        until = now = start
        until += span
        found = None
        while found is None and now < until:
            found, now = look(), time.perf_counter()
        self._evaluate_gain(now - start, 0.0 if found is None else time.thread_time() - had, now)
        return found

    def _evaluate_gain(self, spun: float, well: float, now: float) -> None:
        """Pauses polling if too few of the ``spun`` seconds were spent well."""
        self._spun += spun
        self._well += well
        if self._spun < _EVALUATED_S:
            return
        if self._well < _LEAST_SHARE * self._spun:
            self._paused_until = now + self._pause
            self._pause = min(2.0 * self._pause, _LONGEST_PAUSE_S)
        else:
            self._pause = _FIRST_PAUSE_S
        self._spun = self._well = 0.0


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
