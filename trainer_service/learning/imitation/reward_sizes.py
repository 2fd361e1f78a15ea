"""The sizes of recorded rewards beside those of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainer_service.learning.rollout.trajectories import Trajectories

_ENOUGH = 100
"""Rewards other than 0 of a run before it is compared."""
_FACTOR = 10.0


class RewardSizes(NamedTuple):
    """Absolute rewards of steps, without zeros."""

    number: int = 0
    log_sum: float = 0.0
    largest: float = 0.0

    @property
    def typical(self) -> float:
        """The geometric mean, which rare large rewards of a sparse task hardly move; 0 without rewards."""
        return math.exp(self.log_sum / self.number) if self.number else 0.0

    def and_of(self, trajectories: Trajectories) -> RewardSizes:
        """Includes the rewards of further steps."""
        sizes = np.abs(trajectories.rewards + trajectories.group_rewards, dtype=np.float64)
        sizes = sizes[sizes > 0]
        if not len(sizes):
            return self
        log_sum = self.log_sum + float(np.log(sizes).sum())
        return RewardSizes(self.number + len(sizes), log_sum, max(self.largest, float(sizes.max())))

    def factor_to(self, recorded: RewardSizes) -> float | None:
        """Returns how many times larger recorded rewards are, if that is another scale; None if not, or not yet.

        A policy that has not reached a goal has smaller rewards than an expert, at the same scale. So both the typical
        and the largest reward have to be ten times larger, or smaller.
        """
        if self.number < _ENOUGH or not recorded.number:
            return None
        factors = recorded.typical / self.typical, recorded.largest / self.largest
        if min(factors) >= _FACTOR or max(factors) <= 1 / _FACTOR:
            return factors[0]
        return None


def remarks_on(shown: Trajectories) -> Iterator[str]:
    """Yields what makes a recording doubtful for learning from its rewards."""
    if not (shown.continuous_actions.any() or shown.discrete_actions.any()):
        yield (
            "every recorded action is 0. Were the demonstrator's actions recorded? A heuristic that writes no "
            "actions leaves zeros."
        )
    if not (shown.rewards + shown.group_rewards).any():
        yield "every recorded reward is 0, so the critic learns that the demonstrated steps earn nothing."
