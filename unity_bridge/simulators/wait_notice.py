"""News of a call that is long in returning, said by a thread that looks on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self


class WaitNotice:
    """Says how long a call has not returned, at growing intervals.

    There is no limit: the call may take as long as it wants.
    """

    def __init__(
        self,
        say: Callable[[float], None],
        silence_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            say: called with the seconds that the call has taken, in the thread that looks on.
            silence_s: how long a call may take before anything is said.
            clock: in seconds.
        """
        self._called_at: float | None = None
        self._say = say
        self._pause_s = silence_s
        self._clock = clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(silence_s / 4,), name="wait", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()

    def begin(self) -> None:
        """Notes that a call begins."""
        self._called_at = self._clock()

    def end(self) -> None:
        """Notes that the call has returned."""
        self._called_at = None

    def check(self) -> None:
        """Says it where it is time, and waits twice as long until it says it again."""
        called_at = self._called_at
        if called_at is not None and (waited_s := self._clock() - called_at) >= self._pause_s:
            self._pause_s = 2 * waited_s
            self._say(waited_s)

    def _watch(self, interval_s: float) -> None:
        while not self._over.wait(interval_s):
            self.check()
