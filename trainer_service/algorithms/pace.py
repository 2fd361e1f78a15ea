"""How often an off-policy learner learns, measured by what it lives through."""

from __future__ import annotations


class Pace:
    """One update for every so many recorded steps, once there are enough to draw from.

    Steps before the start earn nothing, so that learning never begins with a burst of updates from little data.
    """

    def __init__(self, start: int, steps_per_update: float) -> None:
        self._start = start
        self._steps_per_update = steps_per_update
        self.steps = 0
        """Recorded so far."""
        self.updates = 0
        """Made so far."""

    @property
    def due(self) -> int:
        """Updates that were earned and not made yet."""
        earned = int(max(self.steps - self._start, 0) / self._steps_per_update)
        return max(earned - self.updates, 0)
