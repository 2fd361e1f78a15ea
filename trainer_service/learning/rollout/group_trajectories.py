"""Assembly of group trajectories: the trajectories of agents that acted together are returned together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from operator import not_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agents import AgentRows, Keys, agent_keys
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.steps import StepBatch

_ALONE = np.int64(1) << 62


def group_keys(batch: StepBatch, team: int) -> Keys:
    """Returns one number per row, equal for agents of one group. An agent without a group has its own. Shape [N]."""
    alone = agent_keys(batch.agent_ids, team) | _ALONE
    return np.where(batch.group_ids != 0, agent_keys(batch.group_ids, team), alone)


class GroupTrajectoryAssembler:
    """Keeps segments until those of the whole group are complete.

    A group trajectory begins with its first agent, and ends when its last agent leaves or when all segments are cut at
    the horizon. The segment of an agent that dies early is kept here until then, since learners of groups need the
    simultaneous steps of all agents. The segment of an agent that is cut is kept, too, while other agents have not
    reported the outcome of their last actions: these are cut when they report it. What the agent does meanwhile belongs
    to the next group trajectory, as the others' simultaneous steps do.
    """

    def __init__(self) -> None:
        self._groups = AgentRows()
        self._present = np.zeros(16, np.int64)
        """Number of living agents in each group."""
        self._group_of = np.full(16, -1, np.int64)
        """The group of each agent row; −1 without a living agent."""
        self._awaited = np.zeros(16, np.bool_)
        """Whether the group's trajectory is complete but for the outcome of this agent row's action."""
        self._num_awaited = np.zeros(16, np.int64)
        """Number of such agents in each group."""
        self._waiting: dict[int, list[Trajectories]] = {}
        """Records with finished segments, by group. A record may also hold segments of other groups."""
        self._next: dict[int, list[Trajectories]] = {}
        """Those of the group's next trajectory: of agents that were cut before the others."""
        self._cut_agents: dict[int, set[int]] = {}
        """The numbers of these agents, by group."""

    def __getitem__(self, rows: Rows) -> Rows:
        """The groups of these agents."""
        found: Rows = self._group_of[rows]
        return found

    def join(self, simulator: int, rows: Rows, keys: Keys) -> None:
        """Marks waiting agents as alive. rows: of the agents; keys: of their groups. Shapes [M]."""
        distinct, of_distinct = np.unique(keys, return_inverse=True)
        groups = self._groups.assign(simulator, distinct)[of_distinct]
        if self._groups.capacity > len(self._present):
            self._present = _grown(self._present, self._groups.capacity, 0)
            self._num_awaited = _grown(self._num_awaited, self._groups.capacity, 0)
        if len(rows) and int(rows.max()) >= len(self._group_of):
            self._group_of = _grown(self._group_of, int(rows.max()) + 1, -1)
            self._awaited = _grown(self._awaited, int(rows.max()) + 1, False)
        new = self._group_of[rows] != groups
        self._group_of[rows[new]] = groups[new]
        np.add.at(self._present, groups[new], 1)

    def moved(self, simulator: int, rows: Rows, keys: Keys) -> NDArray[np.bool_]:
        """Whether each of these living agents changed its group. Shape [M]."""
        known = rows < len(self._group_of)
        before = np.where(known, self._group_of[np.minimum(rows, len(self._group_of) - 1)], -1)
        others: NDArray[np.bool_] = (before >= 0) & (before != self._groups.find(simulator, keys))
        return others

    def leave(self, simulator: int, rows: Rows) -> Rows:
        """Removes agents. Returns the groups whose trajectories are complete; numbers of empty groups are reused."""
        rows = rows[rows < len(self._group_of)]
        rows = rows[self._group_of[rows] >= 0]
        groups = self._group_of[rows]
        np.subtract.at(self._present, groups, 1)
        complete = self._reported(rows)
        self._group_of[rows] = -1
        touched = np.unique(groups)
        empty: Rows = touched[self._present[touched] == 0]
        self._groups.release_rows(simulator, empty)
        return np.union1d(complete, empty) if len(complete) else empty

    def due(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether these agents' segments are to be cut as soon as they report. Shape [M]."""
        found: NDArray[np.bool_] = self._awaited[rows]
        return found

    def cut(self, rows: Rows, full: Rows, acting: Rows) -> Rows:
        """Notes that segments were cut. Returns the groups whose trajectories are complete.

        rows: agents that have reported and whose segments were cut. full: groups with a segment at the horizon.
        acting: agents of any group that have not reported the outcome of their actions.
        """
        closing = full[self._num_awaited[full] == 0]
        awaited = (
            acting[np.isin(self._group_of[acting], closing)] if len(closing) and len(acting) else acting[:0]
        )
        self._awaited[awaited] = True
        np.add.at(self._num_awaited, self._group_of[awaited], 1)
        return np.union1d(closing[self._num_awaited[closing] == 0], self._reported(rows))

    def _reported(self, rows: Rows) -> Rows:
        """Awaits these agents no longer. Returns the groups that await none any more."""
        rows = rows[self._awaited[rows]]
        if not len(rows):
            return rows
        groups = self._group_of[rows]
        self._awaited[rows] = False
        np.subtract.at(self._num_awaited, groups, 1)
        touched = np.unique(groups)
        complete: Rows = touched[self._num_awaited[touched] == 0]
        return complete

    def complete(
        self, segments: Trajectories | None, finished: Rows, *, cut: bool = False
    ) -> Trajectories | None:
        """Adds new segments, and returns the group trajectories of finished groups, with new numbers.

        cut: whether the segments are of agents whose episodes continue in their groups.
        """
        out: list[Trajectories] = []
        kept: list[tuple[Trajectories, bool]] = []
        """Segments that are not returned, and whether they belong to the next trajectories."""
        if segments is not None:
            groups = _groups_of(segments)
            follows, done = self._follows(segments), np.isin(groups, finished)
            # An empty group has no next trajectory.
            done &= ~follows | (self._present[groups] == 0)
            kept = list(_selected(segments, done, follows))
            out += [segments if done.all() else segments.select(done)] if done.any() else []
        if self._waiting or self._next:
            ready: dict[int, tuple[Trajectories, list[int]]] = {}
            for group in finished.tolist():
                later = self._next.pop(group, [])
                self._cut_agents.pop(group, None)
                before = self._waiting.pop(group, [])
                for each in before if self._present[group] else before + later:
                    ready.setdefault(id(each), (each, []))[1].append(group)
                if later and self._present[group]:
                    self._waiting[group] = later
            # One selection for all groups of a record, since thousands of groups may have lost an agent at once.
            parts = [each.select(np.isin(_groups_of(each), groups)) for each, groups in ready.values()]
            # An agent that was cut before has its next steps behind these.
            first = [part.ended is not None and not part.ended.all() for part in parts]
            out = [*compress(parts, first), *out, *compress(parts, map(not_, first))]
        for each, of_next in kept:
            self._keep(each, finished, of_next=of_next, cut=cut)
        return _numbered(out)

    def _follows(self, segments: Trajectories) -> NDArray[np.bool_]:
        """Whether each segment is of an agent that was cut before the others of its group. Shape [P]."""
        groups, agents = _groups_of(segments), segments.agents
        found = np.zeros(len(groups), np.bool_)
        if self._cut_agents and agents is not None:
            pairs = zip(groups.tolist(), agents.tolist(), strict=True)
            found[:] = [agent in self._cut_agents.get(group, ()) for group, agent in pairs]
        return found

    def move(self, had: Rows, have: Rows) -> None:
        """Moves agents to other rows."""
        known = had < len(self._group_of)
        for column, blank in ((self._group_of, -1), (self._awaited, False)):
            values = np.where(known, column[np.where(known, had, 0)], blank)
            column[had[known]] = blank
            column[have[have < len(column)]] = values[have < len(column)]

    def drop(self, simulator: int) -> NDArray[np.int64]:
        """Forgets a simulator's groups and their segments. Returns the numbers of agents that had ended."""
        groups = self._groups.drop(simulator)
        known = groups[groups < len(self._present)]
        self._present[known] = self._num_awaited[known] = 0
        members = np.isin(self._group_of, groups)
        self._group_of[members], self._awaited[members] = -1, False
        numbers = [np.empty(0, np.int64)]
        for group in groups.tolist():
            self._cut_agents.pop(group, None)
            for kept in self._waiting.pop(group, []) + self._next.pop(group, []):
                if kept.agents is not None:
                    numbers.append(kept.agents[(_groups_of(kept) == group) & kept.ended])
        return np.concatenate(numbers)

    def _keep(self, segments: Trajectories, finished: Rows, *, of_next: bool, cut: bool) -> None:
        """Keeps segments; those of the next trajectories of groups that are finished now are of the present ones."""
        groups = _groups_of(segments)
        for group in np.unique(groups).tolist():
            store = self._next if of_next and group not in finished else self._waiting
            store.setdefault(group, []).append(segments)
            if cut and segments.agents is not None and group not in finished:
                numbers = segments.agents[groups == group].tolist()
                self._cut_agents.setdefault(group, set()).update(numbers)


def _selected(
    segments: Trajectories, done: NDArray[np.bool_], follows: NDArray[np.bool_]
) -> Iterator[tuple[Trajectories, bool]]:
    """Yields the segments that are not done: those of the present trajectories, and those of the next."""
    for of_next in (False, True):
        chosen = ~done & (follows == of_next)
        if chosen.any():
            yield segments.select(chosen), of_next


def _groups_of(segments: Trajectories) -> Rows:
    if segments.group_index is None:
        raise ValueError("segments of groups need to say which group they are of")
    return segments.group_index.groups


def _numbered(parts: Iterable[Trajectories]) -> Trajectories | None:
    parts = list(parts)
    if not parts:
        return None
    # Parts of one group stay one group, since their numbers are still the rows of groups.
    return Trajectories.of_same_groups(parts)


def _grown(column: NDArray[Any], rows: int, blank: int) -> NDArray[Any]:
    grown = np.full(2 * rows, blank, column.dtype)
    grown[: len(column)] = column
    return grown
