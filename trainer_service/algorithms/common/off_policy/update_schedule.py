"""Update-to-data ratio of off-policy learners, and the Polyak coefficient of their targets."""

from __future__ import annotations

from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters


class UpdateSchedule:
    """A schedule of one update for every so many recorded steps, once there are enough to sample from.

    Steps before the start earn nothing, so that learning never begins with a burst of updates from little data.
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
        """Steps recorded of those before the first update; None once updates have begun."""
        return (self.steps, self._start) if self.steps < self._start else None

    @property
    def due(self) -> int:
        """Updates that were earned and not made yet."""
        earned = int(max(self.steps - self._start, 0) / self._steps_per_update)
        return max(earned - self.updates, 0)


def target_tau(hyper: OffPolicyHyperparameters, updates: int) -> float:
    """Share of the networks that moves into their targets after so many updates: 1 is a copy, 0 nothing."""
    if hyper.target_update is None:
        return hyper.tau
    return 0.0 if updates % hyper.target_update else 1.0
