"""Replay buffer for groups of agents with memory: it samples whole group trajectories, with memories before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.joint_transitions import JointReplay, JointSample, JointSequences
from trainer_service.learning.replay.priorities import Priorities
from trainer_service.learning.replay.ring import Arrays
from trainer_service.learning.replay.sequence_replay import errors_of_sequences
from trainer_service.learning.rollout.joint_steps import split_group_trajectories
from trainer_service.learning.rollout.trajectories import StepRanges, Trajectories
from unity_bridge.arrays import Floats32, Rows
from unity_bridge.specs import BehaviorSpec


class JointSequenceReplay(JointReplay):
    """Replay buffer of the last ``capacity`` joint steps, sampled as whole group trajectories.

    No sequence is longer than ``longest`` joint steps. Complete sequences are sampled with replacement, uniformly or
    by priority. A sequence whose first joint steps are overwritten is no longer sampled. In addition to the data of
    JointReplay, each trajectory stores the agent's memory before its first step, four bytes per float.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        capacity: int,
        *,
        longest: int,
        memory_size: int,
        alpha: float | None = None,
        **others: Any,
    ) -> None:
        """longest: joint steps of a sequence. memory_size: the stored part of an agent's memory, its first floats.

        alpha: 0 samples uniformly, 1 in proportion to the error, None without priorities. others: see JointReplay.
        """
        super().__init__(spec, capacity, **others)
        self._holds = False  # memories follow decisions
        self._longest = longest
        self._memory_size = memory_size
        self._finals["memories"] = np.empty((self._final_capacity, memory_size), np.float32)
        # Whole sequences have at least one row each, so their numbers differ by less than the capacity.
        self._priorities = None if alpha is None else Priorities(capacity, alpha)
        self.prioritized = alpha is not None
        self._rows_written = 0
        """Rows written so far."""
        self._oldest = 0
        """Number of the oldest complete sequence."""
        self._starts = np.empty(0, np.int64)
        """First row of each complete sequence, counted from the first row ever written."""
        self._lengths = np.empty(0, np.int64)

    @property
    def largest_priority(self) -> float | None:
        """The largest p^α of a sequence; None without priorities."""
        return None if self._priorities is None else self._priorities.largest

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> JointSample:
        """Samples ``count`` sequences. Raises ValueError if there are none."""
        whole = len(self._starts)
        if self._priorities is None:
            return self._gather_whole(rng.integers(whole, size=count), None)
        slots, weights = self._priorities.sample(count, whole, rng, beta)
        return self._gather_whole((slots - self._oldest) % self.capacity, weights)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Sets the priorities of sequences. errors: of all rows of a sample, in their order."""
        if self._priorities is None:
            return
        ends = np.flatnonzero(~self._steps["continues"][rows])
        starts = np.append(0, ends[:-1] + 1)
        before_head = (self._head - rows[starts] - 1) % self.capacity + 1
        found = np.searchsorted(self._starts, self._rows_written - before_head)
        self._priorities.update((self._oldest + found) % self.capacity, errors_of_sequences(errors, starts))

    def state(self) -> Arrays:
        """The whole buffer, see Ring.state, with the starts and priorities of sequences."""
        state = {
            **super().state(),
            "sequences": np.stack([self._starts, self._lengths]),
            "taken": np.array([self._rows_written, self._oldest], np.int64),
        }
        return state if self._priorities is None else {**state, "priorities": self._priorities[self._slots()]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Restores a state, see Ring.load_state. Raises ValueError also if no sequence fits."""
        starts, lengths = state["sequences"]
        self._rows_written, self._oldest = (int(count) for count in state["taken"])
        kept = super().load_state(state)
        self._starts, self._lengths = starts, lengths
        self._forget_overwritten()
        if len(starts) and not len(self._starts):
            raise ValueError(f"none of its sequences fits into a buffer of {self.capacity} joint steps")
        if self._priorities is not None:
            priorities = state.get("priorities", np.ones(len(starts)))
            self._priorities.replace(self._slots(), priorities[len(starts) - len(self._starts) :])
        return kept

    def _write_rows(self, trajectories: Trajectories) -> Rows:
        num_agents = len(self._agent_indices)
        return super()._write_rows(split_group_trajectories(trajectories, num_agents, self._longest))

    def _finals_of(self, trajectories: Trajectories) -> Arrays:
        first = np.cumsum(trajectories.lengths) - trajectories.lengths
        memories = trajectories.memories[first, : self._memory_size]
        return {**super()._finals_of(trajectories), "memories": memories}

    def _append(self, steps: Arrays, finals: Arrays) -> Rows:
        rows = super()._append(steps, finals)
        ends = np.flatnonzero(~steps["continues"]) + 1
        lengths = np.diff(ends, prepend=0)
        new = len(self._starts)
        self._starts = np.append(self._starts, self._rows_written + ends - lengths)
        self._lengths = np.append(self._lengths, lengths)
        self._rows_written += len(steps["segment"])
        before = self._slots()
        forgotten = self._forget_overwritten()
        if self._priorities is not None:
            self._priorities.clear(before[: min(forgotten, new)])
            self._priorities.add(before[max(forgotten, new) :])
        return rows

    def _forget_overwritten(self) -> int:
        """Forgets incomplete sequences. Returns their number."""
        count = int(np.searchsorted(self._starts, self._rows_written - self._size))
        self._starts, self._lengths = self._starts[count:], self._lengths[count:]
        self._oldest += count
        return count

    def _slots(self) -> Rows:
        """Slots of the priorities of all complete sequences."""
        slots: Rows = (self._oldest + np.arange(len(self._starts))) % self.capacity
        return slots

    def _gather_whole(self, chosen: Rows, weights: Floats32 | None) -> JointSample:
        """Returns complete sequences. chosen: their numbers, counted from the oldest. weights: of each."""
        lengths = self._lengths[chosen]
        first = self._head - (self._rows_written - self._starts[chosen])
        rows = StepRanges(first, lengths).steps() % self.capacity
        sample = self._gather(rows, None if weights is None else np.repeat(weights, lengths))
        return replace(sample, sequences=self._sequences(rows, lengths, sample))

    def _sequences(self, rows: Rows, lengths: Rows, sample: JointSample) -> JointSequences:
        window = self._window(rows, self._n_step)
        next_rows, _, finals = self._next_rows(window)
        final = np.zeros(next_rows.shape, np.bool_)
        final[finals] = True
        next_positions = np.where(final, window.at, next_rows)
        segments = np.where(sample.present, self._steps["segment"][rows], -1)
        memories = self._finals["memories"][segments % self._final_capacity]
        memories[~sample.present] = 0.0
        follow_observations, follow_present = sample.next_observations, sample.next_present
        if self._n_step > 1:
            successors, follow_present = self._successors(self._window(rows, 1))
            follow_observations = tuple(successors(name) for name in self._sensor_columns)
        return JointSequences(
            lengths=lengths,
            segments=segments,
            memories=memories,
            offsets=self._wrap(next_positions - rows[:, None]),
            final=final,
            follow_observations=follow_observations,
            follow_present=follow_present,
        )
