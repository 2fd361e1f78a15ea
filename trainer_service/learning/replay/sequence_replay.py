"""Replay buffers for policies with memory. They sample whole sequences, with the memory before each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.priorities import Priorities
from trainer_service.learning.replay.replay_buffer import ReplayBuffer, SampleT
from trainer_service.learning.replay.ring import Arrays
from trainer_service.learning.replay.transitions import Sample, SequencesOfSample, TransitionReplay
from trainer_service.learning.rollout.trajectories import StepRanges, Trajectories
from unity_bridge.arrays import Floats32, Rows

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


class WholeSequences(ReplayBuffer[SampleT]):
    """The part of a replay buffer that samples complete sequences of rows. Another base class stores the rows.

    The column ``last`` marks the ends of sequences. Complete sequences are sampled with replacement, whatever their
    lengths, uniformly or by priority; see Priorities and errors_of_sequences. A sequence whose first rows are
    overwritten is no longer sampled. In addition to the data of the rows, a sequence takes 8 bytes, and a trajectory
    the agent's memory before its first step, four bytes per float.
    """

    row_name: ClassVar[str] = "steps"

    def __init__(self, *arguments: Any, memory_size: int, alpha: float | None = None, **others: Any) -> None:
        """memory_size: the stored part of an agent's memory, its first floats. Other arguments: of the base class.

        alpha: 0 samples uniformly, 1 in proportion to the error, None without priorities.
        """
        super().__init__(*arguments, **others)
        self._memory_size = memory_size
        self._finals["memories"] = np.empty((self._final_capacity, memory_size), np.float32)
        # Complete sequences have at least one row each, so their numbers differ by less than the capacity.
        self._priorities = None if alpha is None else Priorities(self.capacity, alpha)
        self.prioritized = alpha is not None
        self._oldest = 0
        """Number of the oldest complete sequence."""
        self._starts = np.zeros(1, np.int64)
        """First row of each complete sequence and of the next one, counted from the first row ever written."""
        self._room = self._starts
        """Memory for starts, twice as much whenever it is full. Its first ``_used`` entries end with the starts."""
        self._used = 1

    @property
    def largest_priority(self) -> float | None:
        """The largest p^α of a sequence; None without priorities."""
        return None if self._priorities is None else self._priorities.largest

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> SampleT:
        """Samples ``count`` sequences. Raises ValueError if there are none."""
        whole = len(self._starts) - 1
        if self._priorities is None:
            return self._gather_whole(rng.integers(whole, size=count), None)
        slots, weights = self._priorities.sample(count, whole, rng, beta)
        return self._gather_whole((slots - self._oldest) % self.capacity, weights)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Sets the priorities of sequences. errors: of all rows of a sample, in their order."""
        if self._priorities is None:
            return
        starts = self._starts_in(rows)
        before_head = (self._head - rows[starts] - 1) % self.capacity + 1
        found = np.searchsorted(self._starts, self._starts[-1] - before_head)
        self._priorities.update((self._oldest + found) % self.capacity, errors_of_sequences(errors, starts))

    def state(self) -> Arrays:
        """The whole buffer, see Ring.state, with the starts and priorities of sequences."""
        taken = np.array(self._oldest, np.int64)
        state = {**super().state(), "sequences": self._starts, "taken": taken}
        if self._priorities is not None:
            state["priorities"] = self._priorities[self._slots(self._oldest)]
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Restores a state, see Ring.load_state. Raises ValueError also if no sequence fits.

        After a uniform buffer's state all priorities are equal.
        """
        oldest, starts = int(state["taken"]), state["sequences"]
        kept = super().load_state(state)
        self._oldest, self._starts, self._room, self._used = oldest, starts, starts, len(starts)
        self._forget_overwritten()
        slots = self._slots(self._oldest)
        if self._size and not len(slots):
            raise ValueError(f"none of its sequences fits into a buffer of {self.capacity} {self.row_name}")
        if self._priorities is not None:
            priorities = state.get("priorities", np.ones(len(slots)))
            self._priorities.replace(slots, priorities[len(priorities) - len(slots) :])
        return kept

    def _finals_of(self, trajectories: Trajectories) -> Arrays:
        first = np.cumsum(trajectories.lengths) - trajectories.lengths
        memories = trajectories.memories[first, : self._memory_size]
        return {**super()._finals_of(trajectories), "memories": memories}

    def _append(self, steps: Arrays, finals: Arrays) -> Rows:
        rows = super()._append(steps, finals)
        ends = np.flatnonzero(steps["last"]) + 1
        oldest, new = self._oldest, self._next
        self._add_starts(self._starts[-1] + ends)
        self._forget_overwritten()
        if self._priorities is not None:
            self._priorities.clear(self._slots(oldest, min(self._oldest, new)))
            self._priorities.add(self._slots(max(self._oldest, new)))
        return rows

    def _add_starts(self, starts: Rows) -> None:
        live, used = len(self._starts), self._used + len(starts)
        if used > len(self._room):
            used = live + len(starts)
            self._room = np.empty(2 * used, np.int64)
            self._room[:live] = self._starts
        self._room[used - len(starts) : used] = starts
        self._starts, self._used = self._room[used - len(starts) - live : used], used

    def _forget_overwritten(self) -> None:
        """Forgets incomplete sequences."""
        count = int(np.searchsorted(self._starts, self._starts[-1] - self._size))
        self._starts = self._starts[count:]
        self._oldest += count

    @property
    def _next(self) -> int:
        """Number of the next sequence."""
        return self._oldest + len(self._starts) - 1

    def _slots(self, first: int, end: int | None = None) -> Rows:
        """Slots of the priorities of sequences with these numbers, by default to the newest."""
        return np.arange(first, self._next if end is None else end) % self.capacity

    def _gather_whole(self, chosen: Rows, weights: Floats32 | None) -> SampleT:
        """Returns complete sequences. chosen: their numbers, counted from the oldest. weights: of each."""
        starts = self._starts[chosen]
        lengths = self._starts[chosen + 1] - starts
        first = self._head - (self._starts[-1] - starts)
        rows = StepRanges(first, lengths).steps() % self.capacity
        return self._in_sequences(
            self._gather(rows, None if weights is None else np.repeat(weights, lengths)), lengths
        )

    def _starts_in(self, rows: Rows) -> Rows:
        """Places of the first rows of a sample's sequences. rows: of the sample."""
        ends = np.flatnonzero(self._steps["last"][rows])
        return np.append(0, ends[:-1] + 1)

    @abstractmethod
    def _in_sequences(self, sample: SampleT, lengths: Rows) -> SampleT:
        """Adds the sequences to a sample of their rows. lengths: of each."""


class SequenceReplay(WholeSequences[Sample], TransitionReplay):
    """Replay buffer of the last ``capacity`` transitions, sampled as whole trajectories.

    Each trajectory is a sequence: it never crosses the end of an episode, and is no longer than the learner's horizon.
    """

    def _in_sequences(self, sample: Sample, lengths: Rows) -> Sample:
        segments = self._steps["segment"][sample.rows[np.cumsum(lengths) - lengths]]
        memories = self._finals["memories"][segments % self._final_capacity]
        return replace(sample, sequences=SequencesOfSample(lengths, memories))

    def _starts_in(self, rows: Rows) -> Rows:
        # A trajectory that was sampled twice in succession counts once.
        return np.flatnonzero(np.diff(self._steps["segment"][rows], prepend=-1))
