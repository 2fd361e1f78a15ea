"""The reward of the task itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config.rewards import ExtrinsicSettings
from trainer_service.networks.shard import ALONE, Part, Shard
from trainer_service.rewards.transitions import Experience, Transitions
from unity_bridge.specs import BehaviorSpec


class ExtrinsicReward:
    """The simulator's reward: the agent's own plus its group's."""

    name = "extrinsic"
    ignores_end = False
    learns = False
    demonstrations = None

    def __init__(
        self, spec: BehaviorSpec, settings: ExtrinsicSettings, device: torch.device, shard: Shard = ALONE
    ) -> None:
        self.strength = settings.strength
        self.gamma = settings.gamma

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Returns the rewards of all steps. Shape [S]."""
        return experience.trajectories.rewards + experience.trajectories.group_rewards

    def update_statistics(self, experience: Experience) -> None:
        """Does nothing: there are no statistics."""

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns the rewards of these steps. Shape [B]."""
        return transitions.task_rewards

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """Does nothing: there is nothing to learn."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Empty: the task is the simulator's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does nothing: there is nothing to continue."""

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Does nothing: there are none."""
