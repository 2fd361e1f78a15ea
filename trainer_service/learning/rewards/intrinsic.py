"""The base of intrinsic rewards, which are the prediction errors of a network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.config.rewards import IntrinsicSettings
from trainer_service.learning.networks.encoders.layers import in_chunks
from trainer_service.learning.networks.shard import SINGLE_RANK, Part, Shard
from trainer_service.learning.rewards.reward_model import RewardModel
from trainer_service.learning.rewards.reward_scale import RewardScale
from trainer_service.learning.rewards.transitions import Experience, Transitions
from unity_bridge.specs import BehaviorSpec


class IntrinsicReward(RewardModel, ABC):
    """Rewards steps that its network predicts badly, and trains the network on them.

    Rewards are 0 until the first gradient step, since the errors of initial weights are arbitrary. The source owns its
    network, optimizer, observation statistics and reward scale. No gradient reaches the policy. Values are
    bootstrapped past the end of an episode: novelty keeps its value in the next episode. Otherwise agents would learn
    to avoid whatever might end an episode.
    """

    name: str
    ignores_end = True
    demonstrations = None
    _most = math.inf
    """The largest reward of a step, before its strength."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: IntrinsicSettings,
        network: nn.Module,
        device: torch.device,
        shard: Shard = SINGLE_RANK,
    ) -> None:
        super().__init__(spec, settings, network, device, shard)
        self._scales = settings.normalize_rewards
        self._scale = RewardScale(self.gamma)
        self._updates = 0

    @abstractmethod
    def _errors(self, transitions: Transitions) -> Tensor:
        """Returns the prediction error of each step. Shape [B]."""

    @abstractmethod
    def _loss(self, transitions: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss, and its parts by statistic."""

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Updates the statistics, then returns the rewards of new steps. Shape [S]."""
        self._update_normalizer(experience)
        if not self._updates:
            return np.zeros(len(experience), np.float32)
        rewards: NDArray[np.float32] = self._scaled_rewards(self._prediction_errors(experience)).cpu().numpy()
        return rewards

    def update_statistics(self, experience: Experience) -> None:
        """Updates the normalizer with new steps, and the reward scale with their errors."""
        self._update_normalizer(experience)
        if self._updates and self._scales:
            self._prediction_errors(experience)

    def _update_normalizer(self, experience: Experience) -> None:
        self._normalizer.update(self._tensors(experience.trajectories.observations))

    def _prediction_errors(self, experience: Experience) -> Tensor:
        """Returns the prediction error of every step, and updates the reward scale. Shape [S]."""
        chunks = in_chunks(len(experience), self._chunk)
        with torch.no_grad():
            parts = [self._errors(experience.take(chunk)) for chunk in chunks]
        errors = torch.cat(parts) if parts else torch.empty(0)
        if self._scales:
            self._scale.update(experience.trajectories, errors.cpu().numpy())
        return errors

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns the current rewards of recorded steps. Shape [B]."""
        if not self._updates:
            return torch.zeros(len(transitions), device=self._device)
        with torch.no_grad():
            return self._scaled_rewards(self._errors(transitions))

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """Makes one step of Adam with a constant learning rate; none if there are no steps."""
        if len(transitions) == 0:
            return {}
        loss, statistics = self._loss(transitions)
        self._updates += 1
        return self._minimize(loss, statistics, 1.0 if part is None else part.share)

    def state_dict(self) -> dict[str, Any]:
        """The reward model's state, with the scale of rewards."""
        return {**super().state_dict(), **self._scale.state_dict(), "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError, RuntimeError or ValueError if it does not fit."""
        super().load_state_dict(state)
        self._scale.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads the network and statistics, without the optimizer's moments."""
        super().load_weights(state)
        self._scale.load_scale(state)
        self._updates = state["updates"]

    def _scaled_rewards(self, errors: Tensor) -> Tensor:
        deviation = self._scale.deviation if self._scales else 1.0
        # Until an error differs from zero, the scale is 0, and all errors are zero too.
        scaled = errors / deviation if deviation else errors
        return scaled.clamp(max=self._most)
