"""Who is who in a group: each agent's place, the same for as long as it lives."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.agents import AgentRows, Keys, Rows, agent_keys
from trainer_service.rollout.group_trajectories import group_keys
from unity_bridge.steps import StepBatch

_Group = tuple[int, int]
"""A simulator, and the key of a group in it."""


class Seats(NamedTuple):
    """Where the agents of a tick belong, its terminal rows included."""

    groups: Keys
    """``group_keys`` of the tick. Shape [N]."""

    places: NDArray[np.int64]
    """In their groups; of a terminal row the place that its agent leaves. Shape [N]."""


def reported_places(batch: StepBatch, seats: Seats | None) -> NDArray[np.int64]:
    """For people: each row's place in its group; −1 for agents of no group, and where nobody is seated. [N]"""
    if seats is None:
        return np.full(len(batch), -1, np.int64)
    return np.where(batch.group_ids != 0, seats.places, -1)


class _Places:
    """Those of one group. As quick for a thousand agents as for two."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._freed: list[int] = []
        """A heap of places below ``_next`` that nobody has."""
        self._next = 0

    @property
    def nobody_left(self) -> bool:
        return len(self._freed) == self._next

    def take(self) -> int:
        """The first that is free."""
        if self._freed:
            return heapq.heappop(self._freed)
        self._next += 1
        return self._next - 1

    def free(self, place: int) -> None:
        heapq.heappush(self._freed, place)


class GroupPlaces:
    """Gives each agent of a group a place from 0 on: the first that is free when it comes, in the order of ids."""

    def __init__(self) -> None:
        self._agents = AgentRows()
        self._places = np.zeros(16, np.int64)
        self._group_keys = np.zeros(16, np.int64)
        self._places_of: dict[_Group, _Places] = {}

    def assign(self, simulator: int, team: int, batch: StepBatch) -> Seats:
        """Groups and places of all rows."""
        keys, groups = agent_keys(batch.agent_ids, team), group_keys(batch, team)
        ended = batch.num_terminal
        known = self._agents.find(simulator, keys[:ended])
        leaving = np.where(known >= 0, self._places[known], 0)
        gone = (known >= 0) & ~np.isin(keys[:ended], keys[ended:])
        if gone.any():
            self._free(simulator, known[gone])
            self._agents.release(simulator, keys[:ended][gone])
        seated = self._seated(simulator, keys[ended:], groups[ended:])
        return Seats(groups, np.concatenate([leaving, self._places[seated]]))

    def forget(self, simulator: int, keys: Keys) -> None:
        """Frees the places of agents that are gone."""
        rows = self._agents.find(simulator, keys)
        self._free(simulator, rows[rows >= 0])
        self._agents.release(simulator, keys)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator."""
        self._agents.drop(simulator)
        self._places_of = {group: each for group, each in self._places_of.items() if group[0] != simulator}

    def _seated(self, simulator: int, keys: NDArray[np.int64], groups: NDArray[np.int64]) -> Rows:
        """Rows of all who wait, whoever is new or came from another group with a place by now."""
        before = self._agents.find(simulator, keys)
        rows = self._agents.assign(simulator, keys)
        if self._agents.capacity > len(self._places):
            self._places, self._group_keys = (
                np.concatenate([column, np.zeros(2 * self._agents.capacity - len(column), np.int64)])
                for column in (self._places, self._group_keys)
            )
        new = before < 0
        moved = ~new & (self._group_keys[rows] != groups)
        if moved.any():
            self._free(simulator, rows[moved])
        to_seat = np.flatnonzero(new | moved)
        for at in to_seat[np.argsort(keys[to_seat])].tolist():
            group = (simulator, int(groups[at]))
            places = self._places_of.get(group) or self._places_of.setdefault(group, _Places())
            self._places[rows[at]] = places.take()
        self._group_keys[rows] = groups
        return rows

    def _free(self, simulator: int, rows: Rows) -> None:
        for row in rows.tolist():
            group = (simulator, int(self._group_keys[row]))
            places = self._places_of[group]
            places.free(int(self._places[row]))
            if places.nobody_left:
                del self._places_of[group]
