"""The base of intrinsic rewards: a network that learns to predict, and errors that pay."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.config.rewards import IntrinsicSettings
from trainer_service.networks.encoders.layers import in_chunks, observations_as_floats, rows_at_once
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatAdam, FlatParameters
from trainer_service.networks.shard import SINGLE_RANK, Part, Shard
from trainer_service.rewards.reward_scale import RewardScale
from trainer_service.rewards.transitions import Experience, Transitions
from unity_bridge.specs import BehaviorSpec


class IntrinsicReward(ABC):
    """Pays for steps that its network predicts badly, and trains that network on them.

    Before it has learned for the first time it pays nothing, for what it says is the chance of its first weights.
    It owns everything that this takes: network, optimizer, statistics of observations and of its own rewards.
    No gradient reaches the policy. Episode ends are not its business: novelty is worth the same in the next
    episode, so values are bootstrapped past them, or agents would learn to fear what might end them.
    """

    name: str
    ignores_end = True
    learns = True
    demonstrations = None
    _most = math.inf
    """No single step pays more, before its strength."""

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: IntrinsicSettings,
        network: nn.Module,
        device: torch.device,
        shard: Shard = SINGLE_RANK,
    ) -> None:
        self.strength = settings.strength
        self.gamma = settings.gamma
        self._learning_rate = settings.learning_rate
        self._scales = settings.normalize_rewards
        self._device = device
        self._shard = shard
        self._network = network.to(device)
        self._normalizer = ObservationNormalizer(
            spec.observation_specs, normalize=settings.network_settings.normalize
        ).to(device)
        self._parameters = FlatParameters(
            (each for each in network.parameters() if each.requires_grad), shard
        )
        self._optimizer = FlatAdam(self._parameters)
        self._scale = RewardScale(self.gamma)
        self._updates = 0
        self._chunk = rows_at_once(network)

    @abstractmethod
    def _errors(self, transitions: Transitions) -> Tensor:
        """How badly each step was predicted. Shape [B]."""

    @abstractmethod
    def _loss(self, transitions: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns what learning brings down, and its parts by statistic."""

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Counts new steps in, and says what they pay. Shape [S]."""
        self._update_normalizer(experience)
        if not self._updates:
            return np.zeros(len(experience), np.float32)
        rewards: NDArray[np.float32] = self._scaled_rewards(self._prediction_errors(experience)).cpu().numpy()
        return rewards

    def update_statistics(self, experience: Experience) -> None:
        """Lets the normalizer see new steps, and the rewards' scale what they are worth."""
        self._update_normalizer(experience)
        if self._updates and self._scales:
            self._prediction_errors(experience)

    def _update_normalizer(self, experience: Experience) -> None:
        self._normalizer.update([self._tensor(sensor) for sensor in experience.trajectories.observations])

    def _prediction_errors(self, experience: Experience) -> Tensor:
        """How badly every step was predicted, counted into the rewards' scale. Shape [S]."""
        chunks = in_chunks(len(experience), self._chunk)
        with torch.no_grad():
            parts = [self._errors(experience.take(chunk)) for chunk in chunks]
        errors = torch.cat(parts) if parts else torch.empty(0)
        if self._scales:
            self._scale.update(experience.trajectories, errors.cpu().numpy())
        return errors

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns what recorded steps pay today. Shape [B]."""
        if not self._updates:
            return torch.zeros(len(transitions), device=self._device)
        with torch.no_grad():
            return self._scaled_rewards(self._errors(transitions))

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """One step of Adam, at the same rate throughout; none where there is nothing to learn from."""
        if len(transitions) == 0:
            return {}
        self._parameters.zero_gradient()
        loss, statistics = self._loss(transitions)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        share = 1.0 if part is None else part.share
        self._parameters.reduce_gradient(share)
        self._optimizer.step(self._learning_rate)
        self._updates += 1
        return {tag: self._shard.weighted(value.detach(), share) for tag, value in statistics.items()}

    def state_dict(self) -> dict[str, Any]:
        """Network, optimizer and statistics."""
        return {
            "network": self._network.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            **self._scale.state_dict(),
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there. Raises KeyError, RuntimeError or ValueError where it does not fit."""
        self.load_weights(state)
        self._scale.load_state_dict(state)
        self._optimizer.load_state_dict(state["optimizer"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes the network and statistics, without the optimizer's moments."""
        self._network.load_state_dict(state["network"])
        self._normalizer.load_state_dict(state["normalizer"])
        self._scale.load_scale(state)
        self._updates = state["updates"]

    def _seen(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Observations as the network takes them."""
        return observations_as_floats(self._normalizer.forward(observations))

    def _scaled_rewards(self, errors: Tensor) -> Tensor:
        deviation = self._scale.deviation if self._scales else 1.0
        # No reward ever differed from zero: then all errors are zero too.
        scaled = errors / deviation if deviation else errors
        return scaled.clamp(max=self._most)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)
