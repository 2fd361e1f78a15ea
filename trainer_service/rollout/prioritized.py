"""Replay that draws more often what the critic was wrong about, Schaul et al. 2016 (arXiv:1511.05952)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.replay import Arrays, Replay, Rows, Sample
from trainer_service.rollout.sum_tree import SumTree
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec

_LEAST = 1e-6
"""ε: what is predicted perfectly today is still drawn now and then."""


class PrioritizedReplay(Replay):
    """P(i) = p_i^α / Σ p^α, with p = |δ| + ε once a transition has been learned from.

    Before that it is as urgent as the most urgent one; the first of all have p = 1.
    """

    def __init__(self, spec: BehaviorSpec, capacity: int, alpha: float) -> None:
        """alpha: 0 draws uniformly, 1 in proportion to the error."""
        super().__init__(spec, capacity)
        self._alpha = alpha
        self._tree = SumTree(capacity)

    def add(self, trajectories: Trajectories) -> Rows:
        """As Replay.add."""
        rows = super().add(trajectories)
        self._tree.set(rows, np.full(len(rows), self._tree.largest or 1.0))
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """Draws ``count`` transitions, one from each of as many equal shares of the priorities' sum.

        Weights are w_i = (N · P(i))^−β, divided by the largest among those drawn.
        """
        masses = (np.arange(count) + rng.random(count)) * (self._tree.total / count)
        rows = self._tree.find(masses)
        weights = (len(self) * self._tree[rows] / self._tree.total) ** -beta
        return self._gather(rows, (weights / weights.max()).astype(np.float32))

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Says how wrong the critic was about transitions that were drawn: |δ|, unweighted. Shapes [B]."""
        self._tree.set(rows, (np.abs(errors).astype(np.float64) + _LEAST) ** self._alpha)

    def state(self) -> Arrays:
        """As Replay.state, with the priorities."""
        return {**super().state(), "priorities": self._tree[np.arange(len(self))]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """As Replay.load_state. The state of a uniform buffer will do: then all are alike."""
        kept = super().load_state(state)
        self._tree = SumTree(self.capacity)
        priorities = state["priorities"][kept] if "priorities" in state else np.ones(len(kept))
        self._tree.set(np.arange(len(kept)), priorities)
        return kept
