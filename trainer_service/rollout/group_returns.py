"""Returns of group episodes, and results of games, computed from the messages of group members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.agents import AgentRows, Keys, agent_keys, with_room
from unity_bridge.arrays import Rows
from unity_bridge.steps import StepBatch

_FIRST_ROWS = 16
_NO_GROUP = -1


@dataclass(frozen=True, slots=True, eq=False)
class GroupEpisodes:
    """Group episodes that ended in one tick."""

    numbers: NDArray[np.int64]
    """Numbers in the order of their starts, over all groups, from 0. Shape [G]."""

    returns: NDArray[np.float64]
    """The group's rewards plus its members' own, summed over the episode; not normalized. Shape [G]."""

    keys: NDArray[np.int64]
    """Keys of the groups: ``agent_keys`` of their ids. Shape [G]."""

    def __len__(self) -> int:
        return len(self.returns)


_NONE = GroupEpisodes(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.int64))


class GroupReturns:
    """Sums the rewards of each group, without a Python loop over agents or groups.

    A group's episode begins when its first agent requests an action, and ends with the message in which its last
    living agent ends. Agents that died earlier or joined later count too. Group 0 has no episodes.

    Every member receives the full group reward in its own rows, and it is counted once. The last report is the most
    complete one, so members may decide at different ticks.
    """

    def __init__(self) -> None:
        self.begun = 0
        """Number of group episodes that have begun."""
        self._agents = AgentRows()
        self._groups = AgentRows()
        self._group_of = np.full(_FIRST_ROWS, _NO_GROUP, np.int64)
        """The group's row of each agent row."""
        self._group_reward_of = np.zeros(_FIRST_ROWS)
        """The sum of group rewards that each agent has received."""
        self._group_reward = np.zeros(_FIRST_ROWS)
        """The group's reward in its running episode. This and the following arrays are indexed by group rows."""
        self._own = np.zeros(_FIRST_ROWS)
        """The sum of the members' own rewards."""
        self._alive = np.zeros(_FIRST_ROWS, np.int64)
        """Number of living members; 0 without a running episode."""
        self._number = np.zeros(_FIRST_ROWS, np.int64)
        """The number of the running episode."""
        self._key = np.zeros(_FIRST_ROWS, np.int64)
        """The key of the simulator's group."""

    def observe(self, simulator: int, team: int, batch: StepBatch) -> GroupEpisodes:
        """Adds a tick. Returns the episodes that it ends."""
        if not self._agents.capacity and not np.count_nonzero(batch.group_ids):
            return _NONE
        keys = agent_keys(batch.agent_ids, team)
        ended = batch.num_terminal
        finished = self._end(simulator, keys[:ended], batch) if ended else _NONE
        rows = self._agents.find(simulator, keys[ended:])
        known = np.flatnonzero(rows >= 0)
        self._credit(rows[known], batch, ended + known)
        wanted = np.full(len(rows), _NO_GROUP, np.int64)
        grouped = np.flatnonzero(batch.group_ids[ended:])
        wanted[grouped] = self._rows_of_groups(simulator, agent_keys(batch.group_ids[ended:][grouped], team))
        current = np.where(rows >= 0, self._group_of[rows], _NO_GROUP)
        changed = np.flatnonzero(wanted != current)
        if len(changed) == 0:
            return finished
        moved = changed[current[changed] != _NO_GROUP]
        left = self._leave(simulator, rows[moved])
        self._agents.release(simulator, keys[ended:][moved])
        joining = changed[wanted[changed] != _NO_GROUP]
        self._join(simulator, keys[ended:][joining], wanted[joining])
        return _joined(finished, left)

    def forget(self, simulator: int, keys: Keys) -> None:
        """Forgets agents that vanished. A group without remaining agents has not ended either."""
        rows = self._agents.find(simulator, keys)
        self._leave(simulator, rows[rows >= 0])
        self._agents.release(simulator, keys)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left or was reset. Its unfinished episodes are dropped."""
        self._group_of[self._agents.drop(simulator)] = _NO_GROUP
        self._alive[self._groups.drop(simulator)] = 0

    def _end(self, simulator: int, keys: NDArray[np.int64], batch: StepBatch) -> GroupEpisodes:
        rows = self._agents.find(simulator, keys)
        known = np.flatnonzero(rows >= 0)
        self._credit(rows[known], batch, known)
        finished = self._leave(simulator, rows[known])
        self._agents.release(simulator, keys[known])
        return finished

    def _credit(self, rows: Rows, batch: StepBatch, at: NDArray[np.intp]) -> None:
        """Adds the rewards of rows ``at`` of the batch to the groups of the agents' rows."""
        groups = self._group_of[rows]
        np.add.at(self._own, groups, batch.rewards[at])
        self._group_reward_of[rows] += batch.group_rewards[at]
        self._group_reward[groups] = self._group_reward_of[rows]

    def _leave(self, simulator: int, rows: Rows) -> GroupEpisodes:
        groups = self._group_of[rows]
        self._group_of[rows] = _NO_GROUP
        np.subtract.at(self._alive, groups, 1)
        over = np.unique(groups[self._alive[groups] == 0])
        self._groups.release(simulator, self._key[over])  # the group may never return
        returns = self._own[over] + self._group_reward[over]
        return GroupEpisodes(self._number[over], returns, self._key[over])

    def _join(self, simulator: int, keys: NDArray[np.int64], groups: Rows) -> None:
        rows = self._agents.assign(simulator, keys)
        for name in ("_group_of", "_group_reward_of"):
            setattr(self, name, with_room(getattr(self, name), self._agents.capacity))
        beginning = groups[self._alive[groups] == 0]
        if len(beginning):
            # In message order, so that numbers do not depend on the rows of groups.
            beginning = beginning[np.sort(np.unique(beginning, return_index=True)[1])]
            self._number[beginning] = np.arange(self.begun, self.begun + len(beginning))
            self.begun += len(beginning)
            self._own[beginning] = self._group_reward[beginning] = 0.0
        np.add.at(self._alive, groups, 1)
        self._group_of[rows] = groups
        self._group_reward_of[rows] = self._group_reward[groups]

    def _rows_of_groups(self, simulator: int, keys: NDArray[np.int64]) -> Rows:
        """Returns the rows of groups, assigned if new. ``keys`` may repeat."""
        rows = self._groups.find(simulator, keys)
        if len(rows) == 0 or rows.min() >= 0:
            return rows
        rows = self._groups.assign(simulator, distinct := np.unique(keys))
        for name in ("_group_reward", "_own", "_alive", "_number", "_key"):
            setattr(self, name, with_room(getattr(self, name), self._groups.capacity))
        self._key[rows] = distinct
        return rows[np.searchsorted(distinct, keys)]


def _joined(first: GroupEpisodes, second: GroupEpisodes) -> GroupEpisodes:
    if not len(second):
        return first
    return GroupEpisodes(
        np.concatenate([first.numbers, second.numbers]),
        np.concatenate([first.returns, second.returns]),
        np.concatenate([first.keys, second.keys]),
    )


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
