"""Where rewards come from. Each source has its own strength, discount and value head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainer_service.rewards.extrinsic import ExtrinsicReward
from trainer_service.rollout.trajectories import Trajectories


class RewardSource(Protocol):
    """One entry of ``reward_signals``."""

    name: str
    strength: float
    gamma: float

    def rewards(self, trajectories: Trajectories) -> NDArray[np.float32]:
        """Unscaled reward of every step. Shape [S]."""
        ...


REWARD_SOURCES: Mapping[str, Callable[[float, float], RewardSource]] = {
    "extrinsic": ExtrinsicReward,
}
"""By the name that users write; built from (strength, gamma)."""
