"""Sources of rewards, each with its own strength, discount and value head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config.rewards import REWARD_SIGNAL_PLUGINS, RewardSignalSettings
from trainer_service.imitation import DemonstrationStore
from trainer_service.networks.shard import Part, Shard
from trainer_service.plugins import RewardSignalPlugin, guarded, load_factory
from trainer_service.rewards.curiosity import CuriosityReward
from trainer_service.rewards.extrinsic import ExtrinsicReward
from trainer_service.rewards.gail import GAILReward
from trainer_service.rewards.rnd import RNDReward
from trainer_service.rewards.transitions import Experience, Transitions
from unity_bridge.errors import PluginError
from unity_bridge.specs import BehaviorSpec

__all__ = ["REWARD_SOURCES", "Experience", "RewardSource", "Transitions", "make_reward_source"]


class RewardSource(Protocol):
    """One entry of ``reward_signals``. Its rewards are those before its strength."""

    name: str
    strength: float
    gamma: float

    ignores_end: bool
    """Whether its values are bootstrapped past the end of an episode, as if it went on."""

    learns: bool
    """Whether ``learn`` changes anything."""

    @property
    def demonstrations(self) -> DemonstrationStore | None:
        """Demonstrations that it learns from, read before it learns; None without."""
        ...

    def record(self, experience: Experience) -> NDArray[np.float32]:
        """Takes whole trajectories in, once, before learning from them. Returns every step's reward, [S]."""
        ...

    def update_statistics(self, experience: Experience) -> None:
        """Takes in what ``rewards`` depend on where these are asked for later; pays nothing yet."""
        ...

    def rewards(self, transitions: Transitions) -> Tensor:
        """Returns what single steps pay as of today, where they are kept longer than one update. Shape [B]."""
        ...

    def learn(self, transitions: Transitions, part: Part | None = None) -> Mapping[str, Tensor]:
        """One gradient step. Returns its scalars by statistic; nothing for a minibatch of no rows.

        part: where these rows are a learner rank's part of the minibatch; then the scalars are its addends.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that a continued run needs: tensors and plain Python only."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there. Raises KeyError, ValueError or RuntimeError where it does not fit."""
        ...

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes what it knows, to start a new run from it. Raises what ``load_state_dict`` raises."""
        ...


REWARD_SOURCES: dict[str, Callable[[BehaviorSpec, Any, torch.device, Shard], RewardSource]] = {
    "extrinsic": ExtrinsicReward,
    "curiosity": CuriosityReward,
    "gail": GAILReward,
    "rnd": RNDReward,
}
"""By the name that users write; built from the behavior, the signal's settings, where to compute, and what part. One of
a plugin comes in when the first learner with it is made."""


def make_reward_source(
    name: str, spec: BehaviorSpec, settings: RewardSignalSettings, device: torch.device, shard: Shard
) -> RewardSource:
    """The source of a reward signal.

    Raises ValueError where a sensor does not fit it, PluginError where it is a plugin's that cannot be used.
    """
    if name not in REWARD_SOURCES:
        if name not in REWARD_SIGNAL_PLUGINS.offered():
            raise PluginError(f"no reward signal '{name}': the distribution that offered it is not installed")
        factory = load_factory(REWARD_SIGNAL_PLUGINS, name, RewardSignalPlugin, RewardSignalSettings)
        REWARD_SOURCES[name] = guarded(factory, str(REWARD_SIGNAL_PLUGINS.offered()[name]))
    return REWARD_SOURCES[name](spec, settings, device, shard)
