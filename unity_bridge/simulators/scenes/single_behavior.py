"""The base of scenes with one behavior: all agents decide at each step, and start again when their episode ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools
from unity_bridge.side_channels import Aggregation
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Steps, concatenate, step_batch
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, StepBatch

AgentSelection = Bools | slice
"""An index of agents: a mask of shape [N], or ``ALL``."""

ALL = slice(None)


class SingleBehaviorScene(ArrayScene):
    """A scene of N agents that act for themselves: its messages and what it counts.

    Subclasses say how an episode starts and what agents observe; ``step`` ends with ``_next_steps``.
    """

    behavior: ClassVar[str]
    """The id of the behavior (``Basic?team=0``)."""

    def __init__(self, agents: int, academy: Academy | None = None) -> None:
        super().__init__(agents, academy)
        self._agent_ids = np.arange(agents, dtype=np.int64)

    @property
    @abstractmethod
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """The spec of the behavior, by its id."""

    @abstractmethod
    def _start(self, which: AgentSelection) -> None:
        """Draws new episodes for these agents."""

    @abstractmethod
    def _observe(self, rows: AgentSelection) -> Sequence[Observation]:
        """The observations of these agents, an array per sensor."""

    def _allowed_actions(self, rows: AgentSelection) -> Bools:
        """The action masks of these agents; by default everything is allowed. Shape [M, sum of branches]."""
        return np.ones((self._num(rows), self._mask_size), np.bool_)

    @cached_property
    def _mask_size(self) -> int:
        return self.behaviors[self.behavior].action_spec.mask_size

    def _begin(self) -> Steps:
        self._start(ALL)
        return {self.behavior: self._batch(np.zeros(len(self._agent_ids)), ALL)}

    def _next_steps(self, rewards: NDArray[np.floating[Any]], *, terminated: Bools, ended: Bools) -> Steps:
        """Ends episodes, begins the next ones, and returns the rows of both.

        Args:
            rewards: of the step, shape [N].
            terminated: agents that ended their task, shape [N].
            ended: agents that ended their task or ran out of time, shape [N].
        """
        if not np.count_nonzero(ended):
            return {self.behavior: self._batch(rewards, ALL)}
        terminal = self._batch(rewards, ended, terminated=terminated[ended], truncated=~terminated[ended])
        self._start(ended)
        return {self.behavior: concatenate(terminal, self._batch(np.where(ended, 0, rewards), ALL))}

    def _batch(
        self,
        rewards: NDArray[np.floating[Any]],
        rows: AgentSelection,
        *,
        terminated: Bools | None = None,
        truncated: Bools | None = None,
    ) -> StepBatch:
        return step_batch(
            self._observe(rows),
            rewards[rows].astype(np.float32),
            agent_ids=self._agent_ids[rows],
            allowed_actions=self._allowed_actions(rows),
            terminated=terminated,
            truncated=truncated,
        )

    def _count(self, statistic: str, which: Bools) -> None:
        """Adds how many are true to a statistic; leaves it alone where none is."""
        if count := int(np.count_nonzero(which)):
            self._academy.add_statistic(statistic, count, Aggregation.SUM)

    def _num(self, rows: AgentSelection) -> int:
        """The number of these agents."""
        return len(self._agent_ids[rows])
