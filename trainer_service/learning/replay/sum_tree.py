"""A sum tree, which draws rows in proportion to their priorities without a Python loop per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Rows


class SumTree:
    """Non-negative priorities of numbered rows. Every inner node holds the sum and the largest of its subtree.

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
        """The largest priority; 0 in an empty tree."""
        return float(self._largest[1])

    def __getitem__(self, rows: Rows) -> NDArray[np.float64]:
        """Priorities of these rows. Shape kept."""
        priorities: NDArray[np.float64] = self._sums[rows + self._leaves]
        return priorities

    def set(self, rows: Rows, priorities: NDArray[np.float64]) -> None:
        """Sets the priorities of rows. For a repeated row, the last value counts."""
        nodes = rows + self._leaves
        self._sums[nodes] = priorities
        self._largest[nodes] = priorities
        while len(nodes) and nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            left, right = 2 * nodes, 2 * nodes + 1
            self._sums[nodes] = self._sums[left] + self._sums[right]
            self._largest[nodes] = np.maximum(self._largest[left], self._largest[right])

    def find(self, masses: NDArray[np.float64]) -> Rows:
        """Returns the rows whose cumulative priorities first exceed these masses, each in [0, total). Shape kept.

        A row without a priority is never found.
        """
        masses = masses.copy()
        nodes = np.ones(len(masses), np.int64)
        while nodes[0] < self._leaves if len(nodes) else False:
            left = 2 * nodes
            below = self._sums[left]
            # Rounding may make a mass equal to the sum of its subtree. A row without priority must not be found.
            right = (masses >= below) & (self._sums[left + 1] > 0.0)
            masses -= np.where(right, below, 0.0)
            nodes = left + right
        return nodes - self._leaves
