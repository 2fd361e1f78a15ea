"""Indices of agents in their groups. Each agent keeps its index until it leaves."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agents import AgentRows, Keys, agent_keys
from trainer_service.learning.rollout.group_trajectories import group_keys
from unity_bridge.arrays import Rows
from unity_bridge.specs import MemberSpec
from unity_bridge.steps import StepBatch

_Group = tuple[int, int, int]
"""A simulator, the key of a group in it, and the number of a member; 0 if there is one member only."""


class GroupMembership(NamedTuple):
    """The group and the index of every agent of a tick, terminal rows included."""

    groups: Keys
    """``group_keys`` of the tick. Shape [N]."""

    agent_indices: NDArray[np.int64]
    """Indices of agents in their groups; for a terminal row, the index that its agent leaves. Shape [N]."""


def reported_agent_indices(batch: StepBatch, membership: GroupMembership | None) -> NDArray[np.int64]:
    """Returns indices for reports; −1 for agents without a group, or if no indices were assigned. Shape [N]."""
    if membership is None:
        return np.full(len(batch), -1, np.int64)
    if batch.members is not None:
        return membership.agent_indices  # they identify members, also of agents without a group
    return np.where(batch.group_ids != 0, membership.agent_indices, -1)


def too_many_of_member(member: MemberSpec, agents: int) -> str:
    """Returns the message about more agents of a member in one group than it has indices."""
    name = member.behavior
    return (
        f"got a group of at least {agents} agents of '{name}', expected at most {member.num_agents}: set the largest "
        f"number under 'teams', {name}: {agents}"
    )


class _FreeIndices:
    """The free indices of one group. Its operations take equal time for two and for a thousand agents."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._freed: list[int] = []
        """A heap of the free indices below ``_next``."""
        self._next = 0

    @property
    def is_unused(self) -> bool:
        return len(self._freed) == self._next

    def take(self) -> int:
        """Returns the lowest free index, and marks it as used."""
        if self._freed:
            return heapq.heappop(self._freed)
        self._next += 1
        return self._next - 1

    def free(self, index: int) -> None:
        heapq.heappush(self._freed, index)


class AgentIndexAllocator:
    """Assigns each new agent of a group the lowest free index, starting at 0, in the order of agent ids.

    In a heterogeneous group, each member has a range of indices, and its agents get the lowest free index in that
    range.
    """

    def __init__(self, members: Sequence[MemberSpec] = ()) -> None:
        """members: of the heterogeneous group; empty for agents of one behavior."""
        self._members = members
        self._first_indices = np.cumsum([0, *(member.num_agents for member in members)])
        """The first index of each member; 0 if there is one member only."""
        self._agents = AgentRows()
        self._agent_indices = np.zeros(16, np.int64)
        self._group_keys = np.zeros(16, np.int64)
        self._free_indices: dict[_Group, _FreeIndices] = {}

    def assign(self, simulator: int, team: int, batch: StepBatch) -> GroupMembership:
        """Returns groups and agent indices of all rows.

        Raises ValueError if a group has more agents of a member than indices.
        """
        keys, groups = agent_keys(batch.agent_ids, team), group_keys(batch, team)
        ended = batch.num_terminal
        known = self._agents.find(simulator, keys[:ended])
        leaving = np.where(known >= 0, self._agent_indices[known], 0)
        gone = (known >= 0) & ~np.isin(keys[:ended], keys[ended:])
        if gone.any():
            self._free(simulator, known[gone])
            self._agents.release(simulator, keys[:ended][gone])
        members = None if batch.members is None else batch.members[ended:]
        assigned = self._assigned_rows(simulator, keys[ended:], groups[ended:], members)
        return GroupMembership(groups, np.concatenate([leaving, self._agent_indices[assigned]]))

    def forget(self, simulator: int, keys: Keys) -> None:
        """Frees the indices of agents that left."""
        rows = self._agents.find(simulator, keys)
        self._free(simulator, rows[rows >= 0])
        self._agents.release(simulator, keys)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator."""
        self._agents.drop(simulator)
        self._free_indices = {
            group: each for group, each in self._free_indices.items() if group[0] != simulator
        }

    def _assigned_rows(
        self, simulator: int, keys: Keys, groups: Keys, members: NDArray[np.int64] | None
    ) -> Rows:
        """Returns the rows of all waiting agents. Assigns an index to agents that are new or changed their group."""
        before = self._agents.find(simulator, keys)
        rows = self._agents.assign(simulator, keys)
        if self._agents.capacity > len(self._agent_indices):
            self._agent_indices, self._group_keys = (
                np.concatenate([column, np.zeros(2 * self._agents.capacity - len(column), np.int64)])
                for column in (self._agent_indices, self._group_keys)
            )
        new = before < 0
        moved = ~new & (self._group_keys[rows] != groups)
        if members is not None:
            moved |= ~new & (self._members_at(self._agent_indices[rows]) != members)
        if moved.any():
            self._free(simulator, rows[moved])
        unassigned = np.flatnonzero(new | moved)
        for at in unassigned[np.argsort(keys[unassigned])].tolist():
            member = 0 if members is None else int(members[at])
            group = (simulator, int(groups[at]), member)
            free_indices = self._free_indices.get(group) or self._free_indices.setdefault(
                group, _FreeIndices()
            )
            self._agent_indices[rows[at]] = self._first_indices[member] + self._taken(free_indices, member)
        self._group_keys[rows] = groups
        return rows

    def _taken(self, free_indices: _FreeIndices, member: int) -> int:
        """Takes the lowest free index of a member. Raises ValueError if there is none."""
        index = free_indices.take()
        if self._members and index >= self._members[member].num_agents:
            raise ValueError(too_many_of_member(self._members[member], index + 1))
        return index

    def _members_at(self, agent_indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The members that indices belong to; 0 if there is one member only."""
        return np.searchsorted(self._first_indices[1:], agent_indices, side="right")

    def _free(self, simulator: int, rows: Rows) -> None:
        of_rows = self._members_at(self._agent_indices[rows]).tolist()
        for row, member in zip(rows.tolist(), of_rows, strict=True):
            group = (simulator, int(self._group_keys[row]), member)
            free_indices = self._free_indices[group]
            free_indices.free(int(self._agent_indices[row]) - int(self._first_indices[member]))
            if free_indices.is_unused:
                del self._free_indices[group]
