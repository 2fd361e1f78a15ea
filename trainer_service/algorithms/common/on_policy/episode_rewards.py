"""Rewards of each signal over whole episodes, as they are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.rewards import RewardSource
from trainer_service.rollout.episode_runs import EpisodeRuns, EpisodeValues
from trainer_service.rollout.trajectories import Trajectories


class EpisodeRewards:
    """Sums of what each reward source paid an agent in its episode, in however many rollouts that lies."""

    def __init__(self, sources: Sequence[RewardSource]) -> None:
        self._names = [source.name for source in sources]
        self._sums = EpisodeValues(len(sources))

    def metrics(self, trajectories: Trajectories, rewards: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Adds a rollout, and returns each source's mean sum over the episodes that ended in it, by ML-Agents' tag.

        Nothing where none ended. rewards: of each source, its strength included, at every step. Shapes [S].
        """
        runs = EpisodeRuns.of(trajectories)
        starts = np.cumsum(runs.lengths) - runs.lengths
        paid = np.stack(rewards, axis=1)[runs.steps].astype(np.float64)
        sums = self._sums.before(runs) + np.add.reduceat(paid, starts)
        self._sums.update(runs, sums)
        if not runs.ended.any():
            return {}
        means = sums[runs.ended].mean(axis=0)
        return {
            f"Policy/{name.capitalize()} Reward": float(mean)
            for name, mean in zip(self._names, means, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """The sums of episodes that go on."""
        return self._sums.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there."""
        self._sums.load_state_dict(state)
