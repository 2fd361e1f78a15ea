"""The reward of the task itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.trajectories import Trajectories


class ExtrinsicReward:
    """What the simulator said: the agent's own reward plus its group's."""

    name = "extrinsic"

    def __init__(self, strength: float, gamma: float) -> None:
        self.strength = strength
        self.gamma = gamma

    def rewards(self, trajectories: Trajectories) -> NDArray[np.float32]:
        """Shape [S]."""
        return trajectories.rewards + trajectories.group_rewards
