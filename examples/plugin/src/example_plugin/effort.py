"""A reward signal that pays for small continuous actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from example_plugin.settings import EffortSettings
from trainer_service.learning.networks.shard import Part, Shard
from trainer_service.learning.rewards import Experience, Transitions
from unity_bridge.specs import BehaviorSpec


class EffortReward:
    """Pays −mean(a²) for each step, of the actions as the simulator got them. It learns nothing."""

    name = "effort"
    ignores_end = False
    learns = False
    demonstrations = None

    def __init__(
        self, spec: BehaviorSpec, settings: EffortSettings, device: torch.device, shard: Shard
    ) -> None:
        if not spec.action_spec.continuous_size:
            raise ValueError("the reward signal effort needs continuous actions; the behavior has none")
        self.strength = settings.strength
        self.gamma = settings.gamma

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Rewards of new steps. Shape [S]."""
        return self.rewards(experience.take(slice(None))).cpu().numpy()

    def rewards(self, transitions: Transitions) -> Tensor:
        """Rewards of recorded steps, for learners with a replay buffer. Shape [B]."""
        return -transitions.executed_actions.square().mean(dim=1)

    def update_statistics(self, experience: Experience) -> None:
        """Does nothing: rewards depend on nothing but the step."""

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """Learns nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does nothing."""

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Does nothing."""
