"""The environment's own reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config.rewards import ExtrinsicSettings
from trainer_service.learning.networks.shard import SINGLE_RANK, Part, Shard
from trainer_service.learning.rewards.reward_scale import RewardScale
from trainer_service.learning.rewards.transitions import Experience, Transitions
from unity_bridge.specs import BehaviorSpec


class ExtrinsicReward:
    """The simulator's reward: the agent's own plus its group's.

    Normalized rewards are divided by their ``RewardScale``. They are not centered, since centering would change the
    value of an early termination.
    """

    name = "extrinsic"
    ignores_end = False
    learns = False
    demonstrations = None

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: ExtrinsicSettings,
        device: torch.device,
        shard: Shard = SINGLE_RANK,
    ) -> None:
        self.strength = settings.strength
        self.gamma = settings.gamma
        self._normalizes = settings.normalize_rewards
        self._scale = RewardScale(self.gamma)

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Updates the reward scale, then returns the rewards of all steps. Shape [S]."""
        trajectories = experience.trajectories
        rewards = trajectories.rewards + trajectories.group_rewards
        if self._normalizes:
            self._scale.update(trajectories, rewards)
        return self.scaled(rewards)

    def scaled(self, rewards: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns task rewards, divided by their scale if they are normalized. Shape [S]."""
        # Until a reward differs from zero, the scale is 0.
        if not self._normalizes or not self._scale.deviation:
            return rewards
        return rewards / np.float32(self._scale.deviation)

    def update_statistics(self, experience: Experience) -> None:
        """Does nothing: replayed rewards are not normalized."""

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns the rewards of these steps. Shape [B]."""
        return transitions.task_rewards

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """Does nothing: the extrinsic reward has no parameters."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The reward scale; empty if rewards are not normalized."""
        return self._scale.state_dict() if self._normalizes else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the reward scale."""
        self._scale.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads the reward scale."""
        self._scale.load_scale(state)
