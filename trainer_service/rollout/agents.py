"""Rows of preallocated arrays for agents, and which agents are taken for gone.

An agent that leaves should say that its episode ends. Some never do: a scene destroys them, or hides them for ever.
Others are only slow, in games of turns or where decisions are rare. Both are silent, so patience is long, and short
only where very many are.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Rows

Keys = NDArray[np.int64]


def agent_keys(agent_ids: NDArray[np.int64], team: int) -> Keys:
    """Returns one number per agent of a simulator: its id (32 bits on the wire) and its team id. Shape [N]."""
    return (agent_ids & 0xFFFFFFFF) | (np.int64(team) << 32)


def with_room(values: NDArray[Any], rows: int) -> NDArray[Any]:
    """The values, with room for at least so many rows; the new ones are zero."""
    if rows <= len(values):
        return values
    more = np.zeros((2 * rows - len(values), *values.shape[1:]), values.dtype)
    return np.concatenate([values, more])


_NO_AGENTS: tuple[Keys, Rows] = (np.empty(0, np.int64), np.empty(0, np.int64))


_FEW = 1024
"""Rows that are not worth being given back."""


class AgentRows:
    """Hands a row to each agent of each simulator, and takes it back.

    Agents appear, disappear and change order between ticks; a row belongs to one agent until it is released.
    Look-ups are binary searches over sorted keys, so a tick costs no Python loop over its agents.
    """

    def __init__(self) -> None:
        self._tables: dict[int, tuple[Keys, Rows]] = {}
        self._free: list[int] = []
        """A heap: an agent gets the lowest free row, so that the highest become free for good."""
        self._released = 0
        self.capacity = 0
        """Every row that is in use is below it. It falls when most rows were given back."""

    @property
    def in_use(self) -> int:
        """Rows that belong to an agent."""
        return self.capacity - len(self._free)

    def known(self, simulator: int) -> tuple[Keys, Rows]:
        """All agents of a simulator, in the order of their keys, and their rows. Shapes [K]; not to be changed."""
        return self._tables.get(simulator, _NO_AGENTS)

    def find(self, simulator: int, keys: Keys) -> Rows:
        """Rows of known agents, −1 for unknown ones. Shape [N]."""
        table = self._tables.get(simulator)
        if table is None or len(table[0]) == 0:
            return np.full(len(keys), -1, np.int64)
        known, rows = table
        if known.tobytes() == keys.tobytes():
            return rows.copy()  # everybody is there in order: the usual tick
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[at] == keys, rows[at], -1)

    def assign(self, simulator: int, keys: Keys) -> Rows:
        """Rows of all agents; unknown ones get a row now. Keys must differ from each other. Shape [N]."""
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
        """Forgets agents; their rows go to the next ones. Unknown keys are ignored."""
        known, rows = self._tables.get(simulator, (keys[:0], keys[:0]))
        leaving = np.isin(known, keys)
        self._tables[simulator] = (known[~leaving], rows[~leaving])
        self._give_back(rows[leaving])

    def release_rows(self, simulator: int, rows: Rows) -> None:
        """Forgets the agents that hold these rows."""
        known, held = self._tables.get(simulator, (rows[:0], rows[:0]))
        self.release(simulator, known[np.isin(held, rows)])

    def drop(self, simulator: int) -> Rows:
        """Forgets every agent of a simulator. Returns the rows that they held."""
        _, rows = self._tables.pop(simulator, _NO_AGENTS)
        self._give_back(rows)
        return rows

    def compact(self) -> tuple[Rows, Rows] | None:
        """Moves agents from the highest rows to free ones below, where most are free; None where they are not.

        Returns the rows that they had, and those that they have now.
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
        # Seldom enough to cost nothing per row, should the highest row stay in use for long.
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
    """Numbers that nobody has; the smallest is given away first."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._returned: list[int] = []
        """A heap."""

    def take(self, count: int) -> NDArray[np.int64]:
        """Gives so many away. Shape [count]."""
        returned = [heapq.heappop(self._returned) for _ in range(min(count, len(self._returned)))]
        fresh = range(self._next, self._next + count - len(returned))
        self._next = fresh.stop
        return np.array([*returned, *fresh], np.int64)

    def give_back(self, numbers: NDArray[np.int64]) -> None:
        """Takes numbers back."""
        for number in numbers.tolist():
            heapq.heappush(self._returned, number)


MAX_SILENT_TICKS = 10_000
"""Ticks of its simulator that an agent may stay silent for."""

CROWD_SIZE = 4096
"""Agents of one simulator that may be silent for so long, at least."""

MAX_SILENT_TICKS_IN_CROWD = 256
"""Ticks that an agent may stay silent for beside a crowd of silent ones, more than four times those mentioned."""

MAX_SILENT_AGENTS = 8192
"""Agents of one simulator that may be silent at all; beyond, those go that have been silent for longest."""

MAX_AGENTS = 65_536
"""Most agents of one behavior in one simulator."""

_CHECK_EVERY = 64


class TooManyAgents(Exception):
    """The error of a simulator with more agents of one behavior at a time than are served."""


def is_time_to_check(tick: int, known: int, mentioned: int) -> bool:
    """Tells whether to look for vanished agents now: seldom, for usually all are there or soon will be again.

    known: agents of the simulator; mentioned: those of them that this tick speaks of.
    """
    return known > mentioned and (tick % _CHECK_EVERY == 0 or known - mentioned > _max_silent(mentioned))


def vanished_agents(silent_for: NDArray[Any], mentioned: int) -> NDArray[np.bool_]:
    """Tells of each known agent whether it is taken for gone.

    silent_for: ticks of its simulator since it was mentioned, 0 for those that this tick speaks of. Shape [K].
    """
    crowded = len(silent_for) > max(CROWD_SIZE, 4 * mentioned)
    gone: NDArray[np.bool_] = silent_for > (MAX_SILENT_TICKS_IN_CROWD if crowded else MAX_SILENT_TICKS)
    silent, room = len(silent_for) - mentioned, _max_silent(mentioned)
    if silent - int(np.count_nonzero(gone)) > room:
        # More than needed, so that the next newcomers do not make us look at everybody again.
        longest = np.argsort(-silent_for, kind="stable")
        gone[longest[: silent - room * 3 // 4]] = True
    return gone


def _max_silent(mentioned: int) -> int:
    return max(0, min(MAX_SILENT_AGENTS, MAX_AGENTS - mentioned))
