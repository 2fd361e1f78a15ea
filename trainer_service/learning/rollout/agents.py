"""Rows of preallocated arrays for agents, and the detection of vanished agents.

An agent that leaves should report the end of its episode. Some never do: a scene destroys them, or hides them for
ever. Other agents are only slow, in turn-based games or with rare decisions. Both are silent. So the timeout is long,
and short only in simulators with very many silent agents.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Rows

Keys = NDArray[np.int64]


def agent_keys(agent_ids: NDArray[np.int64], team: int) -> Keys:
    """Returns one number per agent of a simulator, from its id (32 bits on the wire) and its team id. Shape [N]."""
    return (agent_ids & 0xFFFFFFFF) | (np.int64(team) << 32)


def with_room(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """Returns the values in an array of at least this many rows. New rows are zero."""
    if rows <= len(values):
        return values
    more = np.zeros((2 * rows - len(values), *values.shape[1:]), values.dtype)
    return np.concatenate([values, more])


_NO_AGENTS: tuple[Keys, Rows] = (np.empty(0, np.int64), np.empty(0, np.int64))


_FEW = 1024
"""Fewer rows than this are never released."""


class AgentRows:
    """Assigns a row to each agent of each simulator, until the agent is released.

    Agents appear, disappear and change order between ticks; a row belongs to one agent until it is released.
    Look-ups are binary searches over sorted keys, so a tick costs no Python loop over its agents.
    """

    def __init__(self) -> None:
        self._tables: dict[int, tuple[Keys, Rows]] = {}
        self._free: list[int] = []
        """A heap. A new agent gets the lowest free row, so that the highest rows become free."""
        self._released = 0
        self.capacity = 0
        """All rows in use are below it. It decreases after most rows are released."""

    @property
    def in_use(self) -> int:
        """Number of rows that belong to an agent."""
        return self.capacity - len(self._free)

    def known(self, simulator: int) -> tuple[Keys, Rows]:
        """Returns all agents of a simulator, sorted by key, and their rows. Shapes [K]. Do not change the arrays."""
        return self._tables.get(simulator, _NO_AGENTS)

    def find(self, simulator: int, keys: Keys) -> Rows:
        """Returns the rows of known agents, −1 for unknown ones. Shape [N]."""
        table = self._tables.get(simulator)
        if table is None or len(table[0]) == 0:
            return np.full(len(keys), -1, np.int64)
        known, rows = table
        if known.tobytes() == keys.tobytes():
            return rows.copy()  # the usual tick: the known agents, in order
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[at] == keys, rows[at], -1)

    def assign(self, simulator: int, keys: Keys) -> Rows:
        """Returns the rows of all agents, and assigns rows to unknown ones. Keys must be unique. Shape [N]."""
        rows = self.find(simulator, keys)
        new = np.flatnonzero(rows < 0)
        if len(new):
            rows[new] = self._take(len(new))
            known, known_rows = self._tables.get(simulator, _NO_AGENTS)
            merged = np.concatenate([known, keys[new]])
            order = np.argsort(merged)
            self._tables[simulator] = (merged[order], np.concatenate([known_rows, rows[new]])[order])
        return rows

    def release(self, simulator: int, keys: Keys) -> None:
        """Releases the rows of agents. Unknown keys are ignored."""
        known, rows = self._tables.get(simulator, (keys[:0], keys[:0]))
        leaving = np.isin(known, keys)
        self._tables[simulator] = (known[~leaving], rows[~leaving])
        self._give_back(rows[leaving])

    def release_rows(self, simulator: int, rows: Rows) -> None:
        """Forgets the agents in these rows."""
        known, held = self._tables.get(simulator, (rows[:0], rows[:0]))
        self.release(simulator, known[np.isin(held, rows)])

    def drop(self, simulator: int) -> Rows:
        """Forgets all agents of a simulator. Returns their rows."""
        _, rows = self._tables.pop(simulator, _NO_AGENTS)
        self._give_back(rows)
        return rows

    def compact(self) -> tuple[Rows, Rows] | None:
        """Moves agents from the highest rows to lower free rows. Returns None unless most rows are free.

        Otherwise returns their old and their new rows.
        """
        count = self.in_use
        if max(4 * count, _FEW) > self.capacity:
            return None
        free = np.sort(np.array([row for row in self._free if row < count], np.int64))
        had: list[Rows] = []
        moved = 0
        for simulator, (known, before) in self._tables.items():
            high = before >= count
            if high.any():
                had.append(before[high])
                rows = before.copy()
                rows[high] = free[moved : moved + len(had[-1])]
                moved += len(had[-1])
                self._tables[simulator] = (known, rows)
        self.capacity, self._free = count, []
        return np.concatenate(had) if had else free, free

    def _give_back(self, rows: Rows) -> None:
        if len(rows) * 8 < len(self._free):
            for row in rows.tolist():
                heapq.heappush(self._free, row)
        else:
            self._free.extend(rows.tolist())
            heapq.heapify(self._free)
        self._released += len(rows)
        # Rare enough to cost nothing per row, even if the highest row stays in use for long.
        if max(4 * self.in_use, _FEW) <= self.capacity <= 8 * self._released:
            self._released = 0
            self.capacity = 1 + max(
                (int(rows.max(initial=-1)) for _, rows in self._tables.values()), default=-1
            )
            self._free = [row for row in self._free if row < self.capacity]
            heapq.heapify(self._free)

    def _take(self, count: int) -> Rows:
        reused = [heapq.heappop(self._free) for _ in range(min(count, len(self._free)))]
        fresh = count - len(reused)
        rows = np.array([*reused, *range(self.capacity, self.capacity + fresh)], np.int64)
        self.capacity += fresh
        return rows


class FreeNumbers:
    """Unused numbers. The smallest is assigned first."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._returned: list[int] = []
        """A heap of returned numbers."""

    def take(self, count: int) -> NDArray[np.int64]:
        """Assigns ``count`` numbers. Shape [count]."""
        returned = [heapq.heappop(self._returned) for _ in range(min(count, len(self._returned)))]
        fresh = range(self._next, self._next + count - len(returned))
        self._next = fresh.stop
        return np.array([*returned, *fresh], np.int64)

    def give_back(self, numbers: NDArray[np.int64]) -> None:
        """Returns numbers for later use."""
        for number in numbers.tolist():
            heapq.heappush(self._returned, number)


MAX_SILENT_TICKS = 10_000
"""Ticks of its simulator after which a silent agent counts as vanished."""

CROWD_SIZE = 4096
"""The number of agents of one simulator above which there may be a crowd."""

MAX_SILENT_TICKS_IN_CROWD = 256
"""The same limit in a crowd: more agents than ``CROWD_SIZE``, and more than four times as many as in the tick."""

MAX_SILENT_AGENTS = 8192
"""The most silent agents of one simulator. Beyond it, the agents that were silent longest count as vanished."""

MAX_AGENTS = 65_536
"""The most agents of one behavior in one simulator."""

_CHECK_EVERY = 64


class TooManyAgents(Exception):
    """A simulator has too many agents of one behavior at a time."""


def is_time_to_check(tick: int, known: int, mentioned: int) -> bool:
    """Whether to look for vanished agents at this tick. It is rare, since silent agents usually return.

    known: agents of the simulator. mentioned: number of them in this tick.
    """
    return known > mentioned and (tick % _CHECK_EVERY == 0 or known - mentioned > _max_silent(mentioned))


def vanished_agents(silent_for: NDArray[Any], mentioned: int) -> NDArray[np.bool_]:
    """Whether each known agent counts as vanished.

    silent_for: ticks of its simulator since the last mention, 0 for agents in this tick. Shape [K].
    """
    crowded = len(silent_for) > max(CROWD_SIZE, 4 * mentioned)
    gone: NDArray[np.bool_] = silent_for > (MAX_SILENT_TICKS_IN_CROWD if crowded else MAX_SILENT_TICKS)
    silent, room = len(silent_for) - mentioned, _max_silent(mentioned)
    if silent - int(np.count_nonzero(gone)) > room:
        # More than necessary, so that the next new agents do not cause another search.
        longest = np.argsort(-silent_for, kind="stable")
        gone[longest[: silent - room * 3 // 4]] = True
    return gone


def _max_silent(mentioned: int) -> int:
    return max(0, min(MAX_SILENT_AGENTS, MAX_AGENTS - mentioned))
