"""Which row of the preallocated arrays belongs to which agent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Rows = NDArray[np.int64]


def agent_keys(agent_ids: NDArray[np.int64], team: int) -> Keys:
    """One number per agent of a simulator: its id (32 bits on the wire) and its team. Shape [N]."""
    return (agent_ids & 0xFFFFFFFF) | (np.int64(team) << 32)


class AgentRows:
    """Hands a row to each agent of each simulator, and takes it back.

    Agents appear, disappear and change order between ticks; a row belongs to one agent until it is released.
    Look-ups are binary searches over sorted keys, so a tick costs no Python loop over its agents.
    """

    def __init__(self) -> None:
        self._tables: dict[int, tuple[Keys, Rows]] = {}
        self._free: list[int] = []
        self.capacity = 0
        """Rows that were ever handed out: every row is below it."""

    def find(self, simulator: int, keys: Keys) -> Rows:
        """Rows of known agents, −1 for unknown ones. Shape [N]."""
        table = self._tables.get(simulator)
        if table is None or len(table[0]) == 0:
            return np.full(len(keys), -1, np.int64)
        known, rows = table
        if len(known) == len(keys) and np.array_equal(known, keys):
            return rows.copy()  # everybody is there in order: the usual tick
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[at] == keys, rows[at], -1)

    def assign(self, simulator: int, keys: Keys) -> Rows:
        """Rows of all agents; unknown ones get a row now. Keys must differ from each other. Shape [N]."""
        rows = self.find(simulator, keys)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = self._take(len(new))
            known, known_rows = self._tables.get(simulator, (np.empty(0, np.int64), np.empty(0, np.int64)))
            merged = np.concatenate([known, keys[new]])
            order = np.argsort(merged)
            self._tables[simulator] = (merged[order], np.concatenate([known_rows, rows[new]])[order])
        return rows

    def release(self, simulator: int, keys: Keys) -> None:
        """Forgets agents; their rows go to whoever comes next. Unknown keys are ignored."""
        known, rows = self._tables.get(simulator, (keys[:0], keys[:0]))
        leaving = np.isin(known, keys)
        self._free.extend(rows[leaving].tolist())
        self._tables[simulator] = (known[~leaving], rows[~leaving])

    def release_rows(self, simulator: int, rows: Rows) -> None:
        """The same for those who hold these rows."""
        known, held = self._tables.get(simulator, (rows[:0], rows[:0]))
        self.release(simulator, known[np.isin(held, rows)])

    def drop(self, simulator: int) -> Rows:
        """Forgets every agent of a simulator. Returns the rows that they held."""
        _, rows = self._tables.pop(simulator, (np.empty(0, np.int64), np.empty(0, np.int64)))
        self._free.extend(rows.tolist())
        return rows

    def _take(self, count: int) -> Rows:
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = count - len(reused)
        rows = np.array([*reused, *range(self.capacity, self.capacity + fresh)], np.int64)
        self.capacity += fresh
        return rows
