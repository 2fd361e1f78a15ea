"""Returns of group episodes, and results of games, computed from the messages of group members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agents import AgentRows, Keys, agent_keys, with_room
from unity_bridge.arrays import Rows
from unity_bridge.steps import StepBatch

_FIRST_ROWS = 16
_NO_GROUP = -1
_NO_NUMBERS, _NO_RETURNS = np.empty(0, np.int64), np.empty(0, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class GroupTick:
    """The group episodes that ended in one tick, G of N rows, and the groups' rewards so far."""

    numbers: NDArray[np.int64]
    """Numbers in the order of their starts, over all groups, from 0. Shape [G]."""

    returns: NDArray[np.float64]
    """The group's rewards plus its members' own, summed over the episode; not normalized. Shape [G]."""

    keys: NDArray[np.int64]
    """Keys of the groups: ``agent_keys`` of their ids. Shape [G]."""

    earned: NDArray[np.float64]
    """The clock of the group that each row's rewards belong to; NaN without one. Shape [N]."""

    earned_before: NDArray[np.float64]
    """The clock of the group that each row acts in from now on; it differs from ``earned`` where an agent joins or
    changes its group. NaN without a group, and for terminal rows. Shape [N]."""

    def __len__(self) -> int:
        """The number of ended episodes."""
        return len(self.returns)


class GroupReturns:
    """Keeps the clock of each group, and sums the rewards of group episodes, without a Python loop over agents.

    A group's episode begins when its first agent requests an action, and ends with the message in which its last
    living agent ends. Agents that died earlier or joined later count too. Group 0 has no episodes.

    The *clock* of a group is the sum of group rewards since its episode began. Each row tells what the group has earned
    since its agent's previous row, so the clock is read from a row whose agent knows its place on it: the clock at its
    previous row. Agents that report in one tick have one place. So the agents of the episode's beginning know it,
    and every agent that reports in one tick with such an agent. The place of any other newcomer is estimated: its
    report moves the clock in the direction of its reward only, and until an agent that knows its
    place reports. If no such agent is left, the estimated places count as known.
    """

    def __init__(self) -> None:
        self.begun = 0
        """Number of group episodes that have begun."""
        self._ticks = 0
        self._agents = AgentRows()
        self._groups = AgentRows()
        self._group_of = np.full(_FIRST_ROWS, _NO_GROUP, np.int64)
        """The group's row of each agent row."""
        self._place = np.zeros(_FIRST_ROWS)
        """The clock of its group at each agent's last row."""
        self._is_known = np.zeros(_FIRST_ROWS, np.bool_)
        """Whether that is not estimated."""
        self._clock = np.zeros(_FIRST_ROWS)
        """This and the following arrays are indexed by group rows."""
        self._read_at = np.zeros(_FIRST_ROWS, np.int64)
        """The last tick in which an agent with a known place reported."""
        self._knowing = np.zeros(_FIRST_ROWS, np.int64)
        """Number of living members with a known place."""
        self._own = np.zeros(_FIRST_ROWS)
        """The sum of the members' own rewards."""
        self._alive = np.zeros(_FIRST_ROWS, np.int64)
        """Number of living members; 0 without a running episode."""
        self._number = np.zeros(_FIRST_ROWS, np.int64)
        """The number of the running episode."""
        self._key = np.zeros(_FIRST_ROWS, np.int64)
        """The key of the simulator's group."""

    def observe(self, simulator: int, team: int, batch: StepBatch) -> GroupTick:
        """Adds a tick. Returns the episodes that it ends, and the clocks."""
        none = np.full(len(batch), np.nan)
        if not self._agents.capacity and not np.count_nonzero(batch.group_ids):
            return _tick(none, none)
        self._ticks += 1
        keys, first = agent_keys(batch.agent_ids, team), batch.num_terminal
        rows = self._agents.find(simulator, keys[first:])
        if first:
            rows[np.isin(keys[first:], keys[:first])] = -1  # an agent that begins its next episode
            rows = np.concatenate([self._agents.find(simulator, keys[:first]), rows])
        known = np.flatnonzero(rows >= 0)
        earned = none.copy()
        earned[known] = self._credit(rows[known], batch, known)
        over = []
        if first:
            ended = np.flatnonzero(rows[:first] >= 0)
            over.append(self._leave(simulator, rows[ended]))
            self._agents.release(simulator, keys[ended])
            keys, rows = keys[first:], rows[first:]
        wanted = np.full(len(rows), _NO_GROUP, np.int64)
        grouped = np.flatnonzero(batch.group_ids[first:])
        wanted[grouped] = self._rows_of_groups(simulator, agent_keys(batch.group_ids[first:][grouped], team))
        current = np.where(rows >= 0, self._group_of[rows], _NO_GROUP)
        changed = np.flatnonzero(wanted != current)
        if len(changed) == 0:
            return _tick(earned, earned, *over)
        moved = changed[current[changed] != _NO_GROUP]
        over.append(self._leave(simulator, rows[moved]))
        self._agents.release(simulator, keys[moved])
        joining = changed[wanted[changed] != _NO_GROUP]
        self._join(simulator, keys[joining], wanted[joining], batch.group_rewards[first + joining])
        earned_before = none
        earned_before[first + grouped] = self._clock[wanted[grouped]]
        return _tick(earned, earned_before, *over)

    def forget(self, simulator: int, keys: Keys) -> None:
        """Forgets agents that vanished. A group without remaining agents has not ended either."""
        rows = self._agents.find(simulator, keys)
        self._leave(simulator, rows[rows >= 0])
        self._agents.release(simulator, keys)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left or was reset. Its unfinished episodes are dropped."""
        self._group_of[self._agents.drop(simulator)] = _NO_GROUP
        self._alive[self._groups.drop(simulator)] = 0

    def _credit(self, rows: Rows, batch: StepBatch, at: NDArray[np.intp]) -> NDArray[np.float64]:
        """Adds the rewards of rows ``at`` of the batch to their agents' groups. Returns the clocks of these."""
        groups, paid = self._group_of[rows], batch.group_rewards[at]
        np.add.at(self._own, groups, batch.rewards[at])
        places, is_known = self._place[rows] + paid, self._is_known[rows]
        if is_known.all():
            self._clock[groups], self._read_at[groups] = places, self._ticks
            self._place[rows] = clocks = self._clock[groups]
            return clocks
        self._advance(groups[~is_known], places[~is_known], paid[~is_known])
        self._clock[groups[is_known]] = places[is_known]
        self._read_at[groups[is_known]] = self._ticks
        found = ~is_known & ((self._read_at[groups] == self._ticks) | (self._knowing[groups] == 0))
        self._is_known[rows[found]] = True
        np.add.at(self._knowing, groups[found], 1)
        self._place[rows] = clocks = self._clock[groups]
        return clocks

    def _advance(self, groups: Rows, places: NDArray[np.float64], paid: NDArray[np.float32]) -> None:
        """Moves clocks to estimated places, if these lie in the direction of the reward that was paid."""
        ahead = places - self._clock[groups]
        up, down = (ahead > 0) & (paid > 0), (ahead < 0) & (paid < 0)
        np.maximum.at(self._clock, groups[up], places[up])
        np.minimum.at(self._clock, groups[down], places[down])

    def _leave(self, simulator: int, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """Removes agents. Returns the numbers, returns and keys of the episodes that end with them."""
        groups = self._group_of[rows]
        self._group_of[rows] = _NO_GROUP
        np.subtract.at(self._alive, groups, 1)
        np.subtract.at(self._knowing, groups, self._is_known[rows])
        over = np.unique(groups[self._alive[groups] == 0])
        self._groups.release(simulator, self._key[over])  # the group may never return
        return self._number[over], self._own[over] + self._clock[over], self._key[over]

    def _join(self, simulator: int, keys: NDArray[np.int64], groups: Rows, paid: NDArray[np.float32]) -> None:
        """Adds agents to groups. paid: the group rewards of their first rows, which may be from before the episode."""
        rows = self._agents.assign(simulator, keys)
        for name in ("_group_of", "_place", "_is_known"):
            setattr(self, name, with_room(getattr(self, name), self._agents.capacity))
        beginning = groups[self._alive[groups] == 0]
        if len(beginning):
            # In message order, so that numbers do not depend on the rows of groups.
            beginning = beginning[np.sort(np.unique(beginning, return_index=True)[1])]
            self._number[beginning] = np.arange(self.begun, self.begun + len(beginning))
            self.begun += len(beginning)
            self._own[beginning] = self._clock[beginning] = 0.0
            self._knowing[beginning] = 0
            self._read_at[beginning] = self._ticks
        np.add.at(self._alive, groups, 1)
        is_known = self._read_at[groups] == self._ticks
        # A newcomer that has been a member from the start tells by its first row what the group has earned since.
        late = ~is_known & (paid * self._clock[groups] >= 0)
        self._advance(groups[late], paid[late].astype(np.float64), paid[late])
        self._group_of[rows], self._place[rows], self._is_known[rows] = groups, self._clock[groups], is_known
        np.add.at(self._knowing, groups, is_known)

    def _rows_of_groups(self, simulator: int, keys: NDArray[np.int64]) -> Rows:
        """Returns the rows of groups, assigned if new. ``keys`` may repeat."""
        rows = self._groups.find(simulator, keys)
        if len(rows) == 0 or rows.min() >= 0:
            return rows
        rows = self._groups.assign(simulator, distinct := np.unique(keys))
        for name in ("_clock", "_read_at", "_knowing", "_own", "_alive", "_number", "_key"):
            setattr(self, name, with_room(getattr(self, name), self._groups.capacity))
        self._key[rows] = distinct
        return rows[np.searchsorted(distinct, keys)]


def _tick(
    earned: NDArray[np.float64], earned_before: NDArray[np.float64], *ended: tuple[Rows, Rows, Rows]
) -> GroupTick:
    """Returns a tick with the episodes that ``_leave`` has ended."""
    columns = zip((_NO_NUMBERS, _NO_RETURNS, _NO_NUMBERS), *ended, strict=True)
    numbers, returns, keys = map(np.concatenate, columns)
    return GroupTick(numbers, returns, keys, earned, earned_before)


def counted_returns(
    own: NDArray[np.float64], in_group: NDArray[np.bool_], groups: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the counted returns of a behavior: those of its groups, and of agents without a group.

    own: returns of agents, [E]. in_group: whether each agent is in a group, [E]. groups: returns of groups, [G]. At
    most [E + G].
    """
    return np.concatenate([own[~in_group], groups])


def game_results(
    batch: StepBatch, team: int, ended: NDArray[np.intp], ended_groups: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns results of games that end with this tick: 1 won, ½ drawn, 0 lost, by the sign of the last rewards.

    An agent without a group plays its own game. A group plays one game, which ends with its last members. The own and
    group rewards of these last members decide. Interrupted games have no result.

    Args:
        batch: the tick.
        team: the team id of these agents.
        ended: rows of agents whose episodes end. Shape [E].
        ended_groups: keys (see ``agent_keys``) of groups without remaining agents. Shape [G].

    Returns:
        The agents' results in row order, then the groups'. At most [E + G].
    """
    last = batch.rewards + batch.group_rewards
    alone = ended[(batch.group_ids[ended] == 0) & batch.terminated[ended]]
    scores = last[alone].tolist()
    if len(ended_groups):
        keys = agent_keys(batch.group_ids, team)[: batch.num_terminal]
        groups, of_row = np.unique(keys, return_inverse=True)
        members = np.bincount(of_row, minlength=len(groups))
        finished = np.bincount(of_row[batch.terminated[: len(keys)]], minlength=len(groups)) == members
        sums = np.bincount(of_row, last[: len(keys)].astype(np.float64), minlength=len(groups))
        at = np.minimum(np.searchsorted(groups, ended_groups), len(groups) - 1)
        won = (
            (groups[at] == ended_groups) & finished[at]
            if len(groups)
            else np.zeros(len(ended_groups), np.bool_)
        )
        scores += (sums / np.maximum(members, 1))[at[won]].tolist()
    results: NDArray[np.float64] = (np.sign(scores) + 1) / 2
    return results
