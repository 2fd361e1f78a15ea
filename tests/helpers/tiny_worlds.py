"""A kit of tiny worlds with a known right answer, in which eight agents act at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)
ALL = np.ones(AGENTS, np.bool_)

Pay = Callable[[np.ndarray, ActionBatch], Any]
"""What all agents earn, by what they saw and did."""


def rows(
    observation: Any,
    reward: Any = 0.0,
    allowed: np.ndarray | None = None,
    ids: np.ndarray = IDS,
    **ends: Any,
) -> StepBatch:
    """A row of each agent, which sees one number. allowed: all of two choices where nothing is said."""
    seen = np.broadcast_to(np.asarray(observation, np.float32), (AGENTS,))[:, None].copy()
    paid = np.broadcast_to(np.asarray(reward, np.float32), (AGENTS,)).copy()
    allowed = np.ones((AGENTS, 2), np.bool_) if allowed is None else allowed
    return step_batch([seen], paid, agent_ids=ids, allowed_actions=allowed, **ends)


def nothing(rng: np.random.Generator) -> np.ndarray:
    return np.zeros(AGENTS)


def either(rng: np.random.Generator) -> np.ndarray:
    """−1 or 1."""
    return rng.choice([-1.0, 1.0], AGENTS)


class Bandit:
    """Episodes of one decision: ``see`` draws what is seen, ``pay`` says what it earns, ``allow`` masks it."""

    def __init__(
        self,
        seed: int,
        pay: Pay,
        see: Callable[[np.random.Generator], np.ndarray] = nothing,
        *,
        choices: int = 2,
        allow: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.rng, self.pay, self.see = np.random.default_rng(seed), pay, see
        self.allow = allow or (lambda seen: np.ones((AGENTS, choices), np.bool_))

    def begin(self) -> StepBatch:
        self.seen = self.see(self.rng)
        self.allowed = self.allow(self.seen)
        return rows(self.seen, 0.0, self.allowed)

    def step(self, actions: ActionBatch) -> StepBatch:
        ended = rows(self.seen, self.pay(self.seen, actions), self.allowed, terminated=ALL)
        return concatenate(ended, self.begin())


class Corridor:
    """Sees 0, 1, 2 and so on, whatever is done; only the last decision pays."""

    def __init__(self, length: int, pay: Pay = lambda seen, actions: 1.0, *, choices: int = 2) -> None:
        self.length, self.pay = length, pay
        self.allowed = np.ones((AGENTS, choices), np.bool_)

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(0.0, 0.0, self.allowed)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time < self.length:
            return rows(float(self.time), 0.0, self.allowed)
        paid = self.pay(np.zeros(AGENTS), actions)
        return concatenate(rows(0.0, paid, self.allowed, terminated=ALL), self.begin())


class NeverOver:
    """Pays 1 for every decision, and is truncated after five, or terminated; what is seen is always 0."""

    def __init__(self, ends: str, *, choices: int = 2) -> None:
        self.ends = ends
        self.allowed = np.ones((AGENTS, choices), np.bool_)

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(0.0, 0.0, self.allowed)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time < 5:
            return rows(0.0, 1.0, self.allowed)
        return concatenate(rows(0.0, 1.0, self.allowed, **{self.ends: ALL}), self.begin())


class LastSight:
    """Half of the agents see 0 and are interrupted at once, having earned nothing and seen 1 at last; the others see
    1, earn 1, and that is the end."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([0.0, 1.0], AGENTS)
        return rows(self.seen)

    def step(self, actions: ActionBatch) -> StepBatch:
        pays = self.seen == 1.0
        return concatenate(rows(1.0, self.seen, terminated=pays, truncated=~pays), self.begin())


class ForbiddenLater:
    """Sees −1 or 1, then 0, where the second choice pays 2; an agent that began with −1 may not choose it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.broken = 0

    def begin(self) -> StepBatch:
        self.first = True
        self.start = either(self.rng)
        return rows(self.start)

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.first:
            self.first = False
            self.allowed = np.stack([ALL, self.start > 0], axis=1)
            return rows(0.0, 0.0, self.allowed)
        self.broken += int(np.count_nonzero((actions.discrete[:, 0] == 1) & (self.start < 0)))
        paid = 2.0 * actions.discrete[:, 0]
        return concatenate(rows(9.0, paid, self.allowed, terminated=ALL), self.begin())
