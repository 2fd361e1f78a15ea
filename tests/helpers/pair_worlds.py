"""A kit of tiny worlds for two, with a known right answer: copies of a pair that act at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch


class Pairs:
    """Copies of a world for two. A subclass says what is seen, and what a step pays."""

    choices = 2

    def __init__(self, seed: int, copies: int = 16) -> None:
        self.copies = copies
        self.rng = np.random.default_rng(seed)
        self.ids = np.arange(2 * copies)
        self.group_ids = 1 + self.ids // 2
        self.seen = np.zeros(2 * copies)
        self.scores: list[float] = []

    def see(self) -> np.ndarray:
        """What each agent sees: [2 · copies]."""
        return np.zeros(len(self.ids))

    def begin(self) -> StepBatch:
        self.seen = self.see()
        return self.rows()

    def rows(
        self, *, own: Any = 0.0, group: Any = 0.0, ends: str = "", who: np.ndarray | None = None
    ) -> StepBatch:
        """Rows of all agents, or of those in a mask; rewards are a number, or one of each agent."""
        who = np.ones(len(self.ids), np.bool_) if who is None else who
        count = int(who.sum())
        own, group = (
            np.broadcast_to(np.float32(paid), len(self.ids))[who].astype(np.float32) for paid in (own, group)
        )
        return step_batch(
            [self.seen[who, None].astype(np.float32)],
            own,
            agent_ids=self.ids[who],
            allowed_actions=np.ones((count, self.choices), np.bool_),
            group_ids=self.group_ids[who],
            group_rewards=group,
            **({ends: np.ones(count, np.bool_)} if ends else {}),
        )

    def ended(self, score: np.ndarray, **paid: Any) -> StepBatch:
        self.scores.append(float(score.mean()))
        return concatenate(self.rows(ends="terminated", **paid), self.begin())

    def score(self, last: int = 40) -> float:
        return float(np.mean(self.scores[-last:]))


class Table(Pairs):
    """Pays the pair by a table of their two choices, once, and then all begins anew."""

    def __init__(self, seed: int, table: list[list[float]], copies: int = 16) -> None:
        super().__init__(seed, copies)
        self.table = np.array(table, np.float32)

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = self.table[tuple(actions.discrete[:, 0].reshape(self.copies, 2).T)]
        return self.ended(paid, group=np.repeat(paid, 2))


def differ(seed: int, copies: int = 16) -> Table:
    """Pays agents that choose differently. Nothing is seen, so they need their index or networks of their own."""
    return Table(seed, [[0.0, 1.0], [1.0, 0.0]], copies)


class OwnCue(Pairs):
    """Pays the group for each agent that chooses its own cue: credit must find the one that earned it."""

    def see(self) -> np.ndarray:
        return self.rng.integers(2, size=len(self.ids)).astype(float)

    def step(self, actions: ActionBatch) -> StepBatch:
        right = (actions.discrete[:, 0] == self.seen).reshape(self.copies, 2).mean(axis=1)
        return self.ended(right, group=np.repeat(right, 2))


class Sacrifice(Pairs):
    """The first of a pair may die: then the other, which acts on for some steps, is paid 1 each step, else nothing.

    Living costs nothing and dying pays nothing, so only who counts what comes after its death learns to die.
    """

    def __init__(self, seed: int, copies: int = 16, *, steps: int = 2) -> None:
        super().__init__(seed, copies)
        self.steps = steps

    def see(self) -> np.ndarray:
        self.time = 0
        return np.tile([0.0, 1.0], self.copies)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time == 1:
            self.dead = (actions.discrete[:, 0] == 1) & (self.ids % 2 == 0)
            self.scores.append(float(self.dead[::2].mean()))
            return concatenate(self.rows(who=self.dead, ends="terminated"), self.rows(who=~self.dead))
        paid = np.roll(self.dead, 1).astype(float)
        if self.time <= self.steps:
            return self.rows(own=paid, who=~self.dead)
        return concatenate(self.rows(own=paid, who=~self.dead, ends="terminated"), self.begin())


class Clock(Pairs):
    """Pays the same at each step, whatever is done; it is over, or interrupted, after some steps."""

    def __init__(self, copies: int = 16, *, steps: int = 5, ends: str = "truncated", **paid: float) -> None:
        super().__init__(0, copies)
        self.steps, self.ends, self.paid = steps, ends, paid
        self.time = 0

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time % self.steps:
            return self.rows(**self.paid)
        return concatenate(self.rows(ends=self.ends, **self.paid), self.begin())
