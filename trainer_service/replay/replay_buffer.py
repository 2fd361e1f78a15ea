"""The base of replay buffers: rows sampled uniformly or by their priorities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainer_service.replay.priorities import Priorities
from trainer_service.replay.ring import Arrays, Ring
from trainer_service.replay.single_steps import SingleSteps
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows

SampleT = TypeVar("SampleT")


class ReplayBuffer(Ring, ABC, Generic[SampleT]):
    """A ring of rows, sampled with replacement: uniformly, or by the rows' priorities, see Priorities."""

    def __init__(self, capacity: int, steps: Arrays, finals: Arrays, alpha: float | None) -> None:
        """alpha: exponent of the priorities; None samples uniformly. steps, finals: as for Ring."""
        super().__init__(capacity, steps, finals)
        self._row_priorities = None if alpha is None else Priorities(capacity, alpha)
        self.prioritized = alpha is not None
        """Whether ``reprioritize`` changes anything."""

    @property
    def largest_priority(self) -> float | None:
        """The largest p^α of a row; None without priorities."""
        return None if self._row_priorities is None else self._row_priorities.largest

    def add(self, trajectories: Trajectories) -> Rows:
        """Adds finished trajectories. Returns their rows, at most ``capacity``.

        Raises ValueError for trajectories that lack what a row holds.
        """
        rows = self._write_rows(trajectories)
        if self._row_priorities is not None:
            self._row_priorities.add(rows)
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> SampleT:
        """Samples ``count`` rows. Raises ValueError where there are none.

        beta: how far the weights of prioritized rows correct for the bias; 1 is all of it.
        """
        return self._gather(*self.draw(count, rng, beta))

    def draw(
        self, count: int, rng: np.random.Generator, beta: float
    ) -> tuple[Rows, NDArray[np.float32] | None]:
        """Chooses the rows of a sample, and their weights where some rows are likelier than others. Shapes [count].

        Raises ValueError where there are no rows. A plugin's buffer may choose otherwise.
        """
        if self._row_priorities is None:
            return rng.integers(self._size, size=count), None
        return self._row_priorities.sample(count, len(self), rng, beta)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Sets the priorities of a sample's rows by the critic's errors: |δ|, unweighted. Shapes [B]."""
        if self._row_priorities is not None:
            self._row_priorities.update(rows, errors)

    def state(self) -> Arrays:
        """Everything in the buffer, see Ring.state, and its priorities."""
        if self._row_priorities is None:
            return super().state()
        return {**super().state(), "priorities": self._row_priorities[np.arange(len(self))]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Continues from a state, see Ring.load_state; from that of a uniform buffer with equal priorities."""
        kept = super().load_state(state)
        if self._row_priorities is not None:
            priorities = state["priorities"][kept] if "priorities" in state else np.ones(len(kept))
            self._row_priorities.replace(np.arange(len(kept)), priorities)
        return kept

    @abstractmethod
    def _write_rows(self, trajectories: Trajectories) -> Rows:
        """Writes trajectories into the ring. Returns their rows."""

    @abstractmethod
    def _gather(self, rows: Rows, weights: NDArray[np.float32] | None) -> SampleT:
        """The sample of these rows. weights: of each row, None where all are equal. Shapes [B]."""

    @abstractmethod
    def single_steps(self, rows: Rows, ahead: int) -> SingleSteps:
        """The single steps that the targets of these rows look at: at most ``ahead`` of each agent. rows: [B]."""
