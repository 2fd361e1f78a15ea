"""The reward scale of ``normalize_rewards``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.episode_runs import EpisodeRuns, EpisodeValues
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.ops.intrinsic import ReturnScale, updated_scale
from trainer_service.ops.returns import discounted_sums_so_far


class RewardScale:
    """The running root mean square of a signal's discounted sums, R_t = γ R_{t−1} + r_t in an agent's episode.

    The sums start at 0 in each episode and continue over trajectories that ``time_horizon`` cuts. So the scale does
    not depend on ``time_horizon``. After Engstrom et al. 2020 (arXiv:2005.12729); all steps count equally.
    """

    def __init__(self, discount: float) -> None:
        self._discount = discount
        self._scale = ReturnScale(rows=0.0, mean_square=0.0)
        self._sums = EpisodeValues()

    @property
    def deviation(self) -> float:
        """The scale; 0 until a reward differs from zero."""
        return self._scale.deviation

    def update(self, trajectories: Trajectories, rewards: NDArray[np.float32]) -> None:
        """Updates the scale with the rewards of all steps of some trajectories. rewards: [S]."""
        if len(rewards) == 0:
            return
        runs = EpisodeRuns.of(trajectories)
        sums = discounted_sums_so_far(
            rewards[runs.steps].astype(np.float64),
            self._sums.before(runs)[:, 0],
            runs.lengths,
            discount=self._discount,
        )
        self._sums.update(runs, sums[np.cumsum(runs.lengths) - 1, None])
        self._scale = updated_scale(self._scale, sums)

    def state_dict(self) -> dict[str, Any]:
        """The scale, and the sums of unfinished episodes."""
        return {"scale": list(self._scale), "sums": self._sums.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state."""
        self.load_scale(state)
        self._sums.load_state_dict(state["sums"])

    def load_scale(self, state: Mapping[str, Any]) -> None:
        """Loads only the scale, for a run with other episodes."""
        self._scale = ReturnScale(*state["scale"])
