"""Sources of rewards, each with its own strength, discount and value head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config.rewards import REWARD_SIGNAL_PLUGINS, RewardSignalSettings
from trainer_service.learning.imitation import DemonstrationStore
from trainer_service.learning.networks.shard import Part, Shard
from trainer_service.learning.rewards.curiosity import CuriosityReward
from trainer_service.learning.rewards.extrinsic import ExtrinsicReward
from trainer_service.learning.rewards.gail import GAILReward
from trainer_service.learning.rewards.rnd import RNDReward
from trainer_service.learning.rewards.transitions import Experience, Transitions
from trainer_service.plugins import RewardSignalPlugin, guarded, load_factory
from unity_bridge.errors import PluginError
from unity_bridge.specs import BehaviorSpec

__all__ = ["REWARD_SOURCES", "Experience", "RewardSource", "Transitions", "make_reward_source"]


class RewardSource(Protocol):
    """One entry of ``reward_signals``. Its rewards are not yet multiplied by its strength."""

    name: str
    strength: float
    gamma: float

    ignores_end: bool
    """Whether its values are bootstrapped past the end of an episode."""

    learns: bool
    """Whether ``learn`` changes anything."""

    @property
    def demonstrations(self) -> DemonstrationStore | None:
        """The demonstrations that it learns from, read before learning; None without demonstrations."""
        ...

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Records whole trajectories, once, before learning from them. Returns the reward of every step, [S]."""
        ...

    def update_statistics(self, experience: Experience) -> None:
        """Updates the statistics that later calls of ``rewards`` depend on. Computes no rewards."""
        ...

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns the current rewards of replayed steps. Shape [B]."""
        ...

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """Makes one gradient step. Returns its scalars by statistic; an empty minibatch gives none.

        part: this learner rank's part of the minibatch, if ranks share it. The scalars are then this rank's addends.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a run: tensors and plain Python values only."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError, ValueError or RuntimeError if it does not fit."""
        ...

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads the weights for a new run. Raises the errors of ``load_state_dict``."""
        ...


REWARD_SOURCES: dict[str, Callable[[BehaviorSpec, Any, torch.device, Shard], RewardSource]] = {
    "extrinsic": ExtrinsicReward,
    "curiosity": CuriosityReward,
    "gail": GAILReward,
    "rnd": RNDReward,
}
"""Factories of reward sources by configuration name. Their arguments: behavior, settings, device, shard. A plugin's
factory is added when the first learner that uses it is made."""


def make_reward_source(
    name: str, spec: BehaviorSpec, settings: RewardSignalSettings, device: torch.device, shard: Shard
) -> RewardSource:
    """Makes the source of a reward signal.

    Raises ValueError if the source does not support a sensor, PluginError if its plugin cannot be used.
    """
    if name not in REWARD_SOURCES:
        if name not in REWARD_SIGNAL_PLUGINS.offered():
            raise PluginError(f"no reward signal '{name}': the distribution that offered it is not installed")
        factory = load_factory(REWARD_SIGNAL_PLUGINS, name, RewardSignalPlugin, RewardSignalSettings)
        REWARD_SOURCES[name] = guarded(factory, str(REWARD_SIGNAL_PLUGINS.offered()[name]))
    return REWARD_SOURCES[name](spec, settings, device, shard)
