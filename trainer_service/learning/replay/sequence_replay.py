"""Replay buffer for policies with memory. It samples whole sequences, with the memory before each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.priorities import Priorities
from trainer_service.learning.replay.transitions import (
    Arrays,
    Rows,
    Sample,
    SequencesOfSample,
    TransitionReplay,
)
from trainer_service.learning.rollout.trajectories import StepRanges, Trajectories
from unity_bridge.specs import BehaviorSpec

_SHARE_OF_WORST = 0.9


def errors_of_sequences(errors: NDArray[np.floating[Any]], starts: Rows) -> NDArray[np.floating[Any]]:
    """Returns the error of each of N sequences: 0.9 times its largest plus 0.1 times its mean error. [N]

    As in Kapturowski et al. 2019 (Recurrent experience replay in distributed reinforcement learning): a mean alone
    would hide single large errors. errors: of all rows, [B]; starts: each sequence's first row, [N].
    """
    absolute = np.abs(errors)
    mean = np.add.reduceat(absolute, starts) / np.diff(starts, append=len(errors))
    worst: NDArray[np.floating[Any]] = np.maximum.reduceat(absolute, starts)
    return _SHARE_OF_WORST * worst + (1.0 - _SHARE_OF_WORST) * mean


class SequenceReplay(TransitionReplay):
    """Replay buffer of the last ``capacity`` transitions, sampled as whole trajectories.

    Each trajectory is a sequence: it never crosses the end of an episode, and is no longer than the learner's horizon.
    All complete trajectories are equally likely, with replacement, whatever their lengths. A trajectory whose first
    steps are overwritten is no longer sampled. In addition to the data of TransitionReplay, a trajectory takes 16
    bytes and the agent's memory before its first step, four bytes per float.
    """

    def __init__(
        self, spec: BehaviorSpec, capacity: int, memory_size: int, *, n_step: int = 1, gamma: float = 1.0
    ) -> None:
        """memory_size: the stored part of an agent's memory, its first floats. n_step, gamma: see TransitionReplay."""
        super().__init__(spec, capacity, n_step=n_step, gamma=gamma)
        self._memory_size = memory_size
        self._steps_written = 0
        """Number of steps written so far."""
        self._finals |= {
            "memories": np.empty((self._final_capacity, memory_size), np.float32),
            "length": np.empty(self._final_capacity, np.int64),
            "end": np.empty(self._final_capacity, np.int64),
        }

    def add(self, trajectories: Trajectories) -> Rows:
        """Adds finished trajectories, see TransitionReplay.add."""
        rows = super().add(trajectories)
        self._steps_written += len(trajectories)
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """Samples ``count`` sequences. Raises ValueError if there are none."""
        return self._gather_whole(rng.integers(self._oldest_whole, self._segments, size=count), None)

    def state(self) -> Arrays:
        """The whole buffer, see Ring.state."""
        return {**super().state(), "taken": np.array(self._steps_written, np.int64)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Restores a state, see Ring.load_state. Raises ValueError also if no sequence fits."""
        self._steps_written = int(state["taken"])
        kept = super().load_state(state)
        if self._size and self._oldest_whole == self._segments:
            raise ValueError(f"none of its sequences fits into a buffer of {self.capacity} steps")
        return kept

    @property
    def _oldest_whole(self) -> int:
        """Number of the oldest complete trajectory."""
        first = self._first_segment
        if first == self._segments:
            return first
        slot = first % self._final_capacity
        start = self._finals["end"][slot] - self._finals["length"][slot]
        return first if start >= self._steps_written - self._size else first + 1

    def _gather_whole(self, numbers: Rows, weights: NDArray[np.float32] | None) -> Sample:
        """Returns whole trajectories. numbers: of the trajectories. weights: of each."""
        slots = numbers % self._final_capacity
        lengths = self._finals["length"][slots]
        before_head = self._steps_written - self._finals["end"][slots] + lengths
        rows = StepRanges(self._head - before_head, lengths).steps() % self.capacity
        sample = self._gather(rows, None if weights is None else np.repeat(weights, lengths))
        return replace(sample, sequences=SequencesOfSample(lengths, self._finals["memories"][slots]))

    def _finals_of(self, trajectories: Trajectories) -> Arrays:
        ends = np.cumsum(trajectories.lengths)
        return {
            **super()._finals_of(trajectories),
            "memories": trajectories.memories[ends - trajectories.lengths, : self._memory_size],
            "length": trajectories.lengths,
            "end": self._steps_written + ends,
        }


class PrioritizedSequenceReplay(SequenceReplay):
    """Replay buffer with a priority for every complete trajectory, see Priorities and errors_of_sequences."""

    def __init__(
        self,
        spec: BehaviorSpec,
        capacity: int,
        memory_size: int,
        alpha: float,
        *,
        n_step: int = 1,
        gamma: float = 1.0,
    ) -> None:
        """alpha: 0 samples uniformly, 1 in proportion to the error. Other arguments: see SequenceReplay."""
        super().__init__(spec, capacity, memory_size, n_step=n_step, gamma=gamma)
        self.prioritized = True
        # Complete trajectories have at least one step each, so their numbers differ by less than the capacity.
        self._priorities = Priorities(capacity, alpha)

    @property
    def largest_priority(self) -> float | None:
        """The largest p^α of a sequence."""
        return self._priorities.largest

    def add(self, trajectories: Trajectories) -> Rows:
        """Adds finished trajectories, with the largest priority."""
        oldest, newest = self._oldest_whole, self._segments
        rows = super().add(trajectories)
        self._priorities.clear(self._slots(oldest, min(self._oldest_whole, newest)))
        self._priorities.add(self._slots(max(self._oldest_whole, newest), self._segments))
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """Samples ``count`` sequences by priority. Raises ValueError if there are none."""
        first = self._oldest_whole
        slots, weights = self._priorities.sample(count, self._segments - first, rng, beta)
        return self._gather_whole(first + (slots - first) % self.capacity, weights)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Sets the priorities of sequences. errors: of all rows of a sample, in their order."""
        numbers = self._steps["segment"][rows]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        self._priorities.update(numbers[starts] % self.capacity, errors_of_sequences(errors, starts))

    def state(self) -> Arrays:
        """The whole buffer, see Ring.state, and the priorities of complete trajectories."""
        return {
            **super().state(),
            "priorities": self._priorities[self._slots(self._oldest_whole, self._segments)],
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Restores a state, see SequenceReplay. After a uniform buffer's state all priorities are equal."""
        kept = super().load_state(state)
        slots = self._slots(self._oldest_whole, self._segments)
        priorities = state.get("priorities", np.ones(len(slots)))
        self._priorities.replace(slots, priorities[len(priorities) - len(slots) :])
        return kept

    def _slots(self, first: int, end: int) -> Rows:
        return np.arange(first, end) % self.capacity
