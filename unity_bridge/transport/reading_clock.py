"""The time in which somebody reads: limits of what others may take are measured in it."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_GAP_S = 1.0
"""How long the reader may be elsewhere, for the work between two messages, without the clock standing still."""


class ReadingClock:
    """A clock that stands still while the reader is away: for an update, a save, a large message, a stopped process.

    Whatever others sent in such a time could not be read, so none of it counts against them. ``now`` may be called
    from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: in seconds, never backwards."""
        self._clock = clock
        self._read_at = clock()
        self._missed_s = 0.0

    def now(self) -> float:
        """The time in seconds; while the reader is away, the time when it went."""
        now, read_at = self._clock(), self._read_at
        return (now if now - read_at <= LONGEST_GAP_S else read_at) - self._missed_s

    def read(self) -> float:
        """Notes that the reader is there, and returns the time."""
        now = self._clock()
        if now - self._read_at > LONGEST_GAP_S:
            self._missed_s += now - self._read_at
        self._read_at = now
        return now - self._missed_s
