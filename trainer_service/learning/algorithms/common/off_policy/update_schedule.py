"""Update-to-data ratio of off-policy learners, and the Polyak coefficient of their targets."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters


class UpdateSchedule:
    """A schedule of one update for a number of recorded steps, after enough steps for sampling.

    Earlier steps do not count, so that learning never begins with a burst of updates from little data.

    The counts of a resumed run continue if its settings are as before. Otherwise the new ones hold from the resumed
    step on: nothing that was recorded earlier is due, or counts against later updates.
    """

    def __init__(self, start: int, steps_per_update: float) -> None:
        self._start = start
        self._steps_per_update = steps_per_update
        self.steps = 0
        """Agent steps recorded so far."""
        self.updates = 0
        """Updates made so far."""

    @property
    def collected(self) -> tuple[int, int] | None:
        """Recorded steps, and the steps needed for the first update; None after the first update is due."""
        return (self.steps, self._start) if self.steps < self._start else None

    @property
    def due(self) -> int:
        """Number of due updates."""
        earned = int(max(self.steps - self._start, 0) / self._steps_per_update)
        return max(earned - self.updates, 0)

    def state(self) -> tuple[float, float, float, float]:
        """Steps and updates, and the settings under which they were counted."""
        return self.steps, self.updates, self._start, self._steps_per_update

    def load_state(self, state: Sequence[float]) -> None:
        """Restores ``state()``; of older runs steps and updates alone, counted under the present settings."""
        steps, updates, *settings = state
        if not settings or settings == [self._start, self._steps_per_update]:
            self.steps, self.updates = int(steps), int(updates)
            return
        has_begun = steps >= settings[0]
        self.steps, self.updates = self._start if has_begun else min(int(steps), self._start), 0


def target_tau(hyper: OffPolicyHyperparameters, updates: int) -> float:
    """Polyak coefficient of the targets after this number of updates: 1 copies, 0 changes nothing."""
    if hyper.target_update is None:
        return hyper.tau
    return 0.0 if updates % hyper.target_update else 1.0
