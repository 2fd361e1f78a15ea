"""A clock for timeouts that only counts the time in which the reader reads messages."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_GAP_S = 1.0
"""Maximum seconds between two readings, for the work between two messages, before the clock stops."""


class ReadingClock:
    """A clock that stops while the reader is busy: during an update, a save, a large message, a stopped process.

    Messages sent in such a time could not be read, so that time does not count against their senders. ``now`` may be
    called from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: in seconds, never backwards."""
        self._clock = clock
        self._read_at = clock()
        self._missed_s = 0.0

    def now(self) -> float:
        """Returns the time in seconds; while the reader is busy, the time of its last reading."""
        now, read_at = self._clock(), self._read_at
        return (now if now - read_at <= LONGEST_GAP_S else read_at) - self._missed_s

    def read(self) -> float:
        """Records a reading, and returns the time."""
        now = self._clock()
        if now - self._read_at > LONGEST_GAP_S:
            self._missed_s += now - self._read_at
        self._read_at = now
        return now - self._missed_s
