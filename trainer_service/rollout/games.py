"""Games of frozen players: which of them count, their results and their returns. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.agents import agent_keys
from trainer_service.rollout.group_returns import GroupReturns
from unity_bridge.steps import StepBatch, join_batches

DRAW = 0.5

ALL_TEAMS = 0
"""A side may be of several, and ids tell a simulator's agents apart."""


class _Game(NamedTuple):
    """A game that has ended."""

    result: float
    value: float
    """The return."""
    length: int
    is_interrupted: bool
    is_cut: bool
    """Whether it was interrupted by a limit of steps."""


class GameLedger:
    """Counts the first ``wanted`` games of one side that *start*, however long they take.

    A group plays one game, an agent without a group one for itself; it ends with the last of them. Its result is the
    sign of the last rewards, their own and the group's: 1 won, ½ drawn, 0 lost. A game that is interrupted is a draw.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._groups = GroupReturns()
        self._ended: dict[int, _Game] = {}
        """The counted games that have ended, by number."""
        self._ticks = 0
        self._began_at: list[int] = []
        """The tick in which each game began, by number."""

    @property
    def complete(self) -> bool:
        """Whether every counted game has ended."""
        return len(self._ended) == self.wanted

    @property
    def num_ended(self) -> int:
        """Counted games that have ended."""
        return len(self._ended)

    @property
    def results(self) -> list[float]:
        """Results of the games, in the order in which they began."""
        return [game.result for game in self._in_order()]

    @property
    def returns(self) -> list[float]:
        """Returns of the side's members and their group in each of the games; raw."""
        return [game.value for game in self._in_order()]

    @property
    def lengths(self) -> list[int]:
        """Ticks of the side in each of the games."""
        return [game.length for game in self._in_order()]

    @property
    def num_interrupted(self) -> int:
        """Games that were interrupted, as by a time limit."""
        return sum(game.is_interrupted for game in self._in_order())

    @property
    def num_cut(self) -> int:
        """Games that were cut at a limit of steps, of those that were interrupted."""
        return sum(game.is_cut for game in self._in_order())

    def observe(
        self, simulator: int, team: int, batch: StepBatch, cut: NDArray[np.bool_] | None = None
    ) -> None:
        """Takes in a tick of the side: see ``side_batch``. cut: as for ``EpisodeLedger.observe``."""
        # An agent without a group is a group of its own, of a number that no simulator gives.
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
    """One batch of what several behaviors of a side got in one tick, without what they saw and may do.

    Agents of one group play one game then, whatever their behaviors.
    """
    if len(batches) == 1:
        return batches[0]
    return join_batches(batches, (), np.ones((sum(map(len, batches)), 0), np.bool_))
