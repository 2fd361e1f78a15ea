"""Replay that draws more often what the critic was wrong about: single transitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.priorities import Priorities
from trainer_service.rollout.replay import Arrays, Replay, Rows, Sample
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec


class PrioritizedReplay(Replay):
    """Every row of the buffer has a priority; see Priorities."""

    prioritized = True

    def __init__(
        self, spec: BehaviorSpec, capacity: int, alpha: float, *, n_step: int = 1, gamma: float = 1.0
    ) -> None:
        """alpha: 0 draws uniformly, 1 in proportion to the error; n_step, gamma: as for Replay."""
        super().__init__(spec, capacity, n_step=n_step, gamma=gamma)
        self._priorities = Priorities(capacity, alpha)

    def add(self, trajectories: Trajectories) -> Rows:
        """As Replay.add."""
        rows = super().add(trajectories)
        self._priorities.add(rows)
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """As Replay.sample."""
        rows, weights = self._priorities.draw(count, len(self), rng, beta)
        return self._gather(rows, weights)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """As Replay.reprioritize."""
        self._priorities.learn(rows, errors)

    def state(self) -> Arrays:
        """As Replay.state, with the priorities."""
        return {**super().state(), "priorities": self._priorities[np.arange(len(self))]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """As Replay.load_state. The state of a uniform buffer will do: then all are alike."""
        kept = super().load_state(state)
        priorities = state["priorities"][kept] if "priorities" in state else np.ones(len(kept))
        self._priorities.replace(np.arange(len(kept)), priorities)
        return kept
