"""Buffers whose rows are drawn one by one: all alike, or more often what the critic was wrong about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainer_service.replay.priorities import Priorities
from trainer_service.replay.ring import Arrays, Ring
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows

SampleT = TypeVar("SampleT")


class ReplayBuffer(Ring, ABC, Generic[SampleT]):
    """The last ``capacity`` rows, drawn with replacement: uniformly, or by a priority of each, see Priorities."""

    def __init__(self, capacity: int, steps: Arrays, finals: Arrays, alpha: float | None) -> None:
        """alpha: None draws uniformly, else what Priorities makes of it. The rest: as for Ring."""
        super().__init__(capacity, steps, finals)
        self._row_priorities = None if alpha is None else Priorities(capacity, alpha)
        self.prioritized = alpha is not None
        """Whether ``reprioritize`` changes anything."""

    @property
    def largest_priority(self) -> float | None:
        """p^α of the most urgent row; None where all are alike."""
        return None if self._row_priorities is None else self._row_priorities.largest

    def add(self, trajectories: Trajectories) -> Rows:
        """Takes finished trajectories in. Returns where their rows stand now, at most ``capacity``.

        Raises ValueError for trajectories that lack what the rows shall have.
        """
        rows = self._write_rows(trajectories)
        if self._row_priorities is not None:
            self._row_priorities.add(rows)
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> SampleT:
        """Draws ``count`` rows. Raises ValueError where there are none.

        beta: how far weights correct for some being likelier than others, if they are; 1 is all the way.
        """
        if self._row_priorities is None:
            return self._gather(rng.integers(self._size, size=count), None)
        return self._gather(*self._row_priorities.sample(count, len(self), rng, beta))

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Says how wrong the critic was about the rows of a sample: |δ|, unweighted. Shapes [B]."""
        if self._row_priorities is not None:
            self._row_priorities.update(rows, errors)

    def state(self) -> Arrays:
        """As Ring.state, with the priorities if there are any."""
        if self._row_priorities is None:
            return super().state()
        return {**super().state(), "priorities": self._row_priorities[np.arange(len(self))]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """As Ring.load_state. The state of a uniform buffer will do for any: then all rows are alike."""
        kept = super().load_state(state)
        if self._row_priorities is not None:
            priorities = state["priorities"][kept] if "priorities" in state else np.ones(len(kept))
            self._row_priorities.replace(np.arange(len(kept)), priorities)
        return kept

    @abstractmethod
    def _write_rows(self, trajectories: Trajectories) -> Rows:
        """Lays trajectories into the ring. Returns where their rows stand."""

    @abstractmethod
    def _gather(self, rows: Rows, weights: NDArray[np.float32] | None) -> SampleT:
        """What stands in these rows, each drawn with a weight. Shapes [B]."""
