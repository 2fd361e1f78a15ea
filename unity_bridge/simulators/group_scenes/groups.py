"""Copies of a group of agents side by side: their ids, and the batches of a message about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class StepResults:
    """The outcome of a step for every agent of every copy. C copies of A agents."""

    observations: NDArray[np.float32]
    """Shape [C, A, size]."""

    rewards: Floats | NDArray[np.float32]
    """Each agent's own. Shape [C, A]."""

    group_rewards: Floats | None = None
    """The group reward in each agent's row; None for zeros. Shape [C, A]."""


def others_of(agents: int) -> NDArray[np.int64]:
    """The other agents of each, in the order of their ids. Shape [A, A − 1]."""
    everyone = np.arange(agents)
    return np.array([np.delete(everyone, agent) for agent in everyone], np.int64)


def own_first(agents: int) -> NDArray[np.int64]:
    """Each agent itself, then the others. Shape [A, A]."""
    return np.concatenate([np.arange(agents)[:, None], others_of(agents)], axis=1)


class Groups:
    """C copies of a group of A agents. Copy c is group 1 + c and has the agents c·A to c·A + A − 1, for ever."""

    def __init__(self, copies: int, agents: int, choices: int, *, side: int = 0) -> None:
        """
        Args:
            copies: C.
            agents: A.
            choices: how many actions a mask speaks of: all discrete ones, or 0.
            side: counts from where the groups and agents of the sides before it end, where teams play each other.
        """
        self.shape = copies, agents
        self._agent_ids = np.arange(copies * agents, dtype=np.int64) + side * copies * agents
        self._group_ids = 1 + self._agent_ids // agents
        self._all_allowed = np.ones((copies * agents, choices), np.bool_)

    def decision_batch(self, results: StepResults, which: Bools | None = None) -> StepBatch:
        """The rows of agents that wait for an action, copy by copy.

        Args:
            results: of all agents, whether or not a row is about them.
            which: the agents that there are rows for, shape [C, A]; None for all.
        """
        return self._rows(results, which, None, None)

    def terminal_batch(self, results: StepResults, *, terminated: Bools, truncated: Bools) -> StepBatch:
        """The terminal rows of agents that ended an episode, copy by copy.

        Args:
            results: of all agents, whether or not a row is about them.
            terminated: agents that ended their task. Shape [C, A].
            truncated: agents that only the clock stopped. Shape [C, A].
        """
        return self._rows(results, terminated | truncated, terminated, truncated)

    def step_batch(
        self, before: StepResults, after: StepResults, *, terminated: Bools, truncated: Bools, waiting: Bools
    ) -> StepBatch:
        """The rows of one message: terminal ones from before copies started again, then deciding ones from after it.

        Args:
            before: observations at the end of the step, and its rewards.
            after: observations after the ended copies were reset; the rewards of these copies are zero.
            terminated, truncated: as in terminal_batch().
            waiting: agents that are to act. Shape [C, A].
        """
        deciding = self.decision_batch(after, waiting)
        if not (terminated | truncated).any():
            return deciding
        return concatenate(self.terminal_batch(before, terminated=terminated, truncated=truncated), deciding)

    def _rows(
        self, results: StepResults, which: Bools | None, terminated: Bools | None, truncated: Bools | None
    ) -> StepBatch:
        rows = slice(None) if which is None else np.flatnonzero(which)
        copies, agents = self.shape
        group_rewards = None
        if results.group_rewards is not None:
            group_rewards = results.group_rewards.astype(np.float32).ravel()[rows]
        return step_batch(
            [results.observations.reshape(copies * agents, -1)[rows]],
            results.rewards.astype(np.float32).ravel()[rows],
            agent_ids=self._agent_ids[rows],
            allowed_actions=self._all_allowed[rows],
            terminated=None if terminated is None else terminated.ravel()[rows],
            truncated=None if truncated is None else truncated.ravel()[rows],
            group_ids=self._group_ids[rows],
            group_rewards=group_rewards,
        )
