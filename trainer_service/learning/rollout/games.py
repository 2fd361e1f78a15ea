"""Games of frozen players: the counted games, their results and returns. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agents import agent_keys
from trainer_service.learning.rollout.group_returns import GroupReturns
from unity_bridge.steps import StepBatch, join_batches

DRAW = 0.5

ALL_TEAMS = 0
"""A side may consist of several teams. Agent ids identify the agents of a simulator."""


class _Game(NamedTuple):
    """A game that has ended."""

    result: float
    value: float
    """The return."""
    length: int
    is_interrupted: bool
    is_cut: bool
    """Whether a limit of steps interrupted it."""


class GameLedger:
    """Counts the first ``wanted`` games of one side that *start*, however long they take.

    A group plays one game, which ends with its last agent. An agent without a group plays its own game. The result is
    the sign of the last rewards, own and group: 1 won, ½ drawn, 0 lost. An interrupted game is a draw.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._groups = GroupReturns()
        self._ended: dict[int, _Game] = {}
        """The ended games that count, by number."""
        self._ticks = 0
        self._began_at: list[int] = []
        """The start tick of each game, by number."""

    @property
    def complete(self) -> bool:
        """Whether every counted game has ended."""
        return len(self._ended) == self.wanted

    @property
    def num_ended(self) -> int:
        """Number of counted games that have ended."""
        return len(self._ended)

    @property
    def results(self) -> list[float]:
        """Results of the games, in the order of their starts."""
        return [game.result for game in self._in_order()]

    @property
    def returns(self) -> list[float]:
        """Returns of each game, summed over the side's members and their group; not normalized."""
        return [game.value for game in self._in_order()]

    @property
    def lengths(self) -> list[int]:
        """Ticks of each game."""
        return [game.length for game in self._in_order()]

    @property
    def num_interrupted(self) -> int:
        """Number of interrupted games, as by a time limit."""
        return sum(game.is_interrupted for game in self._in_order())

    @property
    def num_cut(self) -> int:
        """Number of interrupted games that a limit of steps cut."""
        return sum(game.is_cut for game in self._in_order())

    def observe(
        self, simulator: int, team: int, batch: StepBatch, cut: NDArray[np.bool_] | None = None
    ) -> None:
        """Adds a tick of the side, see ``side_batch``. cut: as in ``EpisodeLedger.observe``."""
        # An agent without a group gets its own group, with a number that no simulator sends.
        alone = batch.group_ids == 0
        batch = replace(batch, group_ids=np.where(alone, ~batch.agent_ids, batch.group_ids))
        self._ticks += 1
        ended = self._groups.observe(simulator, team, batch)
        self._began_at += [self._ticks] * (self._groups.begun - len(self._began_at))
        if not len(ended):
            return
        first = batch.num_terminal
        keys = agent_keys(batch.group_ids[:first], team)
        last = (batch.rewards + batch.group_rewards)[:first]
        for number, value, key in zip(
            ended.numbers.tolist(), ended.returns.tolist(), ended.keys, strict=True
        ):
            if number < self.wanted:
                members = keys == key
                over = bool(members.any() and batch.terminated[:first][members].all())
                result = (float(np.sign(last[members].sum())) + 1.0) / 2.0 if over else DRAW
                is_cut = cut is not None and bool(cut[members].any())
                length = self._ticks - self._began_at[number]
                self._ended[number] = _Game(result, value, length, not over, is_cut)

    def _in_order(self) -> list[_Game]:
        return [game for _, game in sorted(self._ended.items())]


def side_batch(batches: Sequence[StepBatch]) -> StepBatch:
    """Joins one tick's batches of several behaviors of a side, without observations and action masks.

    So the agents of a group play one game, even if they have several behaviors.
    """
    if len(batches) == 1:
        return batches[0]
    return join_batches(batches, (), np.ones((sum(map(len, batches)), 0), np.bool_))
