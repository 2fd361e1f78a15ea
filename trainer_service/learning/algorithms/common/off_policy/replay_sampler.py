"""Sampling of minibatches: a learner's replay buffer, with its progress of learning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters
from trainer_service.config.network import MemorySettings
from trainer_service.learning.algorithms.common.acting import to_array
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.demonstrated_rows import DemonstratedRows
from trainer_service.learning.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.learning.algorithms.common.schedules import scheduled
from trainer_service.learning.networks.shard import SINGLE_RANK, Part, Shard
from trainer_service.learning.replay.joint_transitions import JointSample, JointSequences
from trainer_service.learning.replay.replay_buffer import ReplayBuffer
from trainer_service.learning.replay.ring import Arrays
from trainer_service.learning.replay.single_steps import SingleSteps
from trainer_service.learning.replay.transitions import Sample, SequencesOfSample
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows

SampleT = TypeVar("SampleT", bound=Sample | JointSample)
RecordT = TypeVar("RecordT", bound=Sample | JointSample | JointSequences)


class ReplaySampler(Generic[SampleT]):
    """A replay buffer with the progress of learning from it.

    Samples depend on the seed and on the number of updates, so a resumed run draws the same samples.
    """

    def __init__(
        self,
        buffer: ReplayBuffer[SampleT],
        hyper: ReplayHyperparameters,
        seed: int,
        *schedules: UpdateSchedule,
        sample_size: int | None = None,
        one_stream: bool = False,
        shard: Shard = SINGLE_RANK,
        demonstrations: DemonstratedRows | None = None,
    ) -> None:
        """schedules: of gradient steps, and of reward models that learn from the buffer.

        sample_size: rows or sequences of a minibatch; None for ``batch_size``. one_stream: whether minibatches of
        reward models use the same stream and count as others. shard: this rank's part of samples. demonstrations: a
        part of each minibatch of the gradient steps; reward models learn from own rows alone.
        """
        self.buffer = buffer
        self.demonstrations = demonstrations
        self.updates = 0
        """Gradient steps in the whole run; with sac, including updates of the reward models."""
        self.reward_updates = 0
        """Updates of the reward models in the whole run; not counted with sac."""
        self.rows = 0
        """Rows recorded in the whole run."""
        self.schedule = schedules[0]
        self.reward_schedule = schedules[-1]
        self._schedules = schedules
        self._seed = seed
        self._sample_size = hyper.batch_size if sample_size is None else sample_size
        self._one_stream = one_stream
        self._settings = hyper.replay
        self._saves = hyper.save_replay_buffer
        self._shard = shard
        self.part = Part(slice(None), self._sample_size)
        """This learner rank's part of the newest sample."""
        self._undivided: SampleT | None = None

    @property
    def beta(self) -> float:
        """The present exponent of importance weights."""
        return scheduled("linear", self._settings.beta, 1.0, self.updates, self._settings.beta_updates)

    def metrics(self) -> dict[str, float]:
        """Metrics of prioritized replay; empty for uniform replay."""
        largest = self.buffer.largest_priority
        return {} if largest is None else {"Replay/Beta": self.beta, "Replay/Largest Priority": largest}

    def record(self, trajectories: Trajectories) -> Rows:
        """Adds experience to the buffer. Returns its rows."""
        rows = self.buffer.add(trajectories)
        self.rows += len(rows)
        for schedule in self._schedules:
            schedule.steps += len(trajectories)
        if self.demonstrations is not None:
            self.demonstrations.compare(trajectories)
        return rows

    def rng(self) -> np.random.Generator:
        """The random stream of the present updates."""
        return np.random.default_rng([self._seed, self.updates])

    def minibatches(self, rng: np.random.Generator) -> Iterator[SampleT]:
        """Yields a minibatch for each due gradient step. Call ``finish_step`` after each."""
        due, size = self.schedule.due, self._sample_size
        together = 1 if self.demonstrations is not None else self.buffer.most_together(size)
        for done in range(0, due, together):
            if together == 1:
                yield self.sample(rng)
                continue
            samples = self.buffer.sample_together(min(together, due - done), size, rng)
            for first in range(0, len(samples.rows), size):
                yield self._own(_rows_of(samples, slice(first, first + size)))

    def reward_minibatches(self, rng: np.random.Generator) -> Iterator[SampleT]:
        """Yields a minibatch for each due update of the reward models.

        It uses a separate stream, so that gradient steps are the same without these updates. rng: the stream of the
        preceding gradient steps, for ``one_stream``.
        """
        own = np.random.default_rng([self._seed, self.updates, self.reward_updates])
        for _ in range(self.reward_schedule.due):
            stream = rng if self._one_stream else own
            yield self._own(self.buffer.sample(self._sample_size, stream, beta=self.beta))
            self.reward_schedule.updates += 1
            if self._one_stream:
                self.updates += 1
            else:
                self.reward_updates += 1

    def sample(self, rng: np.random.Generator) -> SampleT:
        """Draws one minibatch; with several learner ranks, this rank's part of it."""
        shown = self.demonstrations
        if shown is None:
            return self._own(self.buffer.sample(self._sample_size, rng, beta=self.beta))
        sample: Any = self.buffer.sample(self._sample_size - shown.count, rng, beta=self.beta)
        sample = shown.beside(sample, rng)
        return self._own(sample)

    def single_steps(self, rows: Rows, ahead: int) -> SingleSteps:
        """Returns the single steps of the targets of a sample's rows, see ``ReplayBuffer.single_steps``."""
        buffer: Any = self.buffer
        if self.demonstrations is None:
            return self.buffer.single_steps(rows, ahead)
        return self.demonstrations.single_steps(buffer, rows, ahead)

    def _own(self, sample: SampleT) -> SampleT:
        """Makes a sample the newest one. Returns this rank's part of it."""
        self._undivided = sample
        if self._shard.world == 1:
            return sample
        own, self.part = part_of_sample(sample, self._shard)
        return own

    @property
    def undivided(self) -> SampleT:
        """The newest sample with the rows of all learner ranks. Raises ValueError before the first sample."""
        if self._undivided is None:
            raise ValueError("nothing was sampled yet")
        return self._undivided

    @property
    def part_of_steps(self) -> Part:
        """This rank's part of the newest minibatch's single steps. A joint step has one for each present agent."""
        part, whole = self.part, self.undivided
        if not isinstance(whole, JointSample):
            return part
        steps = whole.present.sum(axis=1)
        if self._shard.world == 1 or part.copies > 1:
            return Part(slice(None), int(steps.sum()), part.share, part.copies)
        own = np.zeros(len(steps), np.bool_)
        own[part.rows] = True
        rows = np.flatnonzero(np.repeat(own, steps))
        return Part(rows, int(steps.sum()), len(rows) / int(steps.sum()))

    def finish_step(self, errors: Tensor) -> None:
        """Counts a gradient step on the newest sample. errors: |δ| of its rows, unweighted. Shape [B]."""
        if self.buffer.prioritized:
            errors = self._shard.collected(errors, self.part)
            rows = self.undivided.rows
            own = len(rows) - (0 if self.demonstrations is None else self.demonstrations.count)
            self.buffer.reprioritize(rows[:own], to_array(errors)[:own])
        self.schedule.updates += 1
        self.updates += 1

    def state_dict(self) -> dict[str, int]:
        """The whole state except the buffer, see ``replay_state``."""
        return {
            "sampling_seed": self._seed,
            "updates": self.updates,
            "reward_updates": self.reward_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state with an empty buffer. Raises KeyError if an entry is missing."""
        self._seed, self.updates = state["sampling_seed"], state["updates"]
        self.reward_updates = state["reward_updates"]

    def replay_state(self) -> Arrays | None:
        """The buffer and the progress of each schedule, if they are saved."""
        if not self._saves:
            return None
        schedules = np.array([schedule.state() for schedule in self._schedules], np.float64)
        return {**self.buffer.state(), "schedules": schedules}

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores the buffer. Raises KeyError or ValueError if it does not fit."""
        self.buffer.load_state(state)
        saved = state["schedules"]  # pairs, one after the other, in older files
        rows = saved.reshape(-1, 2) if saved.ndim == 1 else saved
        for schedule, own in zip(self._schedules, rows, strict=True):
            schedule.load_state(own.tolist())


def make_sampler(
    buffer: ReplayBuffer[SampleT],
    hyper: ReplayHyperparameters,
    memory: MemorySettings | None,
    compute: Compute,
    *,
    learns_rewards: bool,
    one_stream: bool = False,
    demonstrations: DemonstratedRows | None = None,
) -> ReplaySampler[SampleT]:
    """Makes the sampler of a learner. memory: of its networks. With memory, minibatches are whole sequences."""
    schedules = [UpdateSchedule(hyper.learning_starts, hyper.steps_per_update)]
    if learns_rewards:
        schedules.append(UpdateSchedule(hyper.learning_starts, hyper.reward_signal_steps_per_update))
    size = None if memory is None else max(hyper.batch_size // memory.sequence_length, 1)
    return ReplaySampler(
        buffer, hyper, compute.seed, *schedules, sample_size=size, one_stream=one_stream, shard=compute.shard,
        demonstrations=demonstrations,
    )  # fmt: skip


def part_of_sample(sample: SampleT, shard: Shard) -> tuple[SampleT, Part]:
    """Returns a learner rank's rows or sequences of a sample, and their part."""
    sequences = getattr(sample, "sequences", None)
    if sequences is None:
        part = shard.part(len(sample.rows))
        return _rows_of(sample, part.rows), part
    own, part = shard.part_of_sequences(sequences.lengths)
    lengths = sequences.lengths[own]
    if isinstance(sequences, SequencesOfSample):
        order = SequencesOfSample(lengths, sequences.memories[own])
    else:
        order = _rows_of(sequences, part.rows, lengths=lengths)
    return _rows_of(sample, part.rows, sequences=order), part


def _rows_of(sample: RecordT, rows: slice | Rows, **others: Any) -> RecordT:
    """Selects rows of all arrays in a record, also in tuples. others: new values of other fields."""
    taken: dict[str, Any] = others
    for field in fields(sample):
        value = getattr(sample, field.name)
        if field.name in others:
            continue
        if isinstance(value, tuple):
            taken[field.name] = tuple(column[rows] for column in value)
        elif value is not None:
            taken[field.name] = value[rows]
    return replace(sample, **taken)
