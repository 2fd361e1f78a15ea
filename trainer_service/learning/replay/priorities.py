"""Priorities of prioritized replay, Schaul et al. 2016 (arXiv:1511.05952)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.sum_tree import SumTree
from unity_bridge.arrays import Rows

_LEAST = 1e-6
"""ε: rows without an error keep a small probability."""


class Priorities:
    """Sampling probabilities P(i) = p_i^α / Σ p^α, with p = |δ| + ε after the first update of i.

    A new i gets the largest priority; the first ones have p = 1. i is a slot below ``capacity``.
    """

    def __init__(self, capacity: int, alpha: float) -> None:
        """alpha: 0 samples uniformly, 1 in proportion to the error."""
        self._capacity = capacity
        self._alpha = alpha
        self._tree = SumTree(capacity)

    def __getitem__(self, slots: Rows) -> NDArray[np.float64]:
        """p^α of these slots. Shape kept."""
        return self._tree[slots]

    @property
    def largest(self) -> float:
        """The largest p^α; 0 before the first."""
        return self._tree.largest

    def add(self, slots: Rows) -> None:
        """Gives new slots the largest priority."""
        self._tree.set(slots, np.full(len(slots), self._tree.largest or 1.0))

    def clear(self, slots: Rows) -> None:
        """Removes the priorities of these slots, so that they are no longer sampled."""
        self._tree.set(slots, np.zeros(len(slots)))

    def sample(
        self, count: int, population: int, rng: np.random.Generator, beta: float
    ) -> tuple[Rows, NDArray[np.float32]]:
        """Samples ``count`` slots, one from each of ``count`` equal parts of the priorities' sum, with weights.

        Weights are w_i = (N · P(i))^−β, divided by the largest of the sample. population: N, slots in use.
        """
        masses = (np.arange(count) + rng.random(count)) * (self._tree.total / count)
        slots = self._tree.find(masses)
        weights = (population * self._tree[slots] / self._tree.total) ** -beta
        return slots, (weights / weights.max()).astype(np.float32)

    def update(self, slots: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Sets priorities by the errors of the critic: |δ|, shape as ``slots``."""
        self._tree.set(slots, (np.abs(errors).astype(np.float64) + _LEAST) ** self._alpha)

    def replace(self, slots: Rows, priorities: NDArray[np.float64]) -> None:
        """Replaces all priorities: p^α of these slots, 0 for all others."""
        self._tree = SumTree(self._capacity)
        self._tree.set(slots, priorities)
