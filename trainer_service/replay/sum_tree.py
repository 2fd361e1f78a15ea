"""Priorities from which rows are drawn in proportion, without a Python loop per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Rows


class SumTree:
    """Non-negative priorities of numbered rows; every inner node holds the sum, and the largest, below it.

    Setting n priorities and drawing n rows both take O(n log capacity), level by level for all n at once.
    """

    def __init__(self, capacity: int) -> None:
        leaves = 1 << max(capacity - 1, 0).bit_length()
        self._leaves = leaves
        # Node 1 is the root, the children of node k are 2k and 2k + 1: row i is node leaves + i.
        self._sums = np.zeros(2 * leaves, np.float64)
        self._largest = np.zeros(2 * leaves, np.float64)

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._sums[1])

    @property
    def largest(self) -> float:
        """The largest priority; 0 where there is none."""
        return float(self._largest[1])

    def __getitem__(self, rows: Rows) -> NDArray[np.float64]:
        """Priorities of these rows, shape kept."""
        priorities: NDArray[np.float64] = self._sums[rows + self._leaves]
        return priorities

    def set(self, rows: Rows, priorities: NDArray[np.float64]) -> None:
        """Gives rows their priorities; of a row that is given twice, the last counts."""
        nodes = rows + self._leaves
        self._sums[nodes] = priorities
        self._largest[nodes] = priorities
        while len(nodes) and nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            left, right = 2 * nodes, 2 * nodes + 1
            self._sums[nodes] = self._sums[left] + self._sums[right]
            self._largest[nodes] = np.maximum(self._largest[left], self._largest[right])

    def find(self, masses: NDArray[np.float64]) -> Rows:
        """The rows at which the running sum of priorities passes these masses, each in [0, total). Shape kept.

        A row without a priority is never found.
        """
        masses = masses.copy()
        nodes = np.ones(len(masses), np.int64)
        while nodes[0] < self._leaves if len(nodes) else False:
            left = 2 * nodes
            below = self._sums[left]
            # Rounding may leave a mass at the very end of what lies to its left; nothing is found in nothing.
            right = (masses >= below) & (self._sums[left + 1] > 0.0)
            masses -= np.where(right, below, 0.0)
            nodes = left + right
        return nodes - self._leaves
