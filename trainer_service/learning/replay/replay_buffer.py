"""The base of replay buffers: rows sampled uniformly or by priority."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.priorities import Priorities
from trainer_service.learning.replay.ring import (
    FIRST_SEGMENTS,
    Arrays,
    Ring,
    observation_arrays,
    observation_columns,
)
from trainer_service.learning.replay.single_steps import SingleSteps
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Bools, Rows
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import as_floats

SampleT = TypeVar("SampleT")

NextValues = Callable[[str], NDArray[Any]]
"""A function from a column name to its values one step after certain steps."""

_MOST_BYTES = 1 << 21
"""Most bytes of rows that are gathered together, so that they stay in the cache."""


class ReplayBuffer(Ring, ABC, Generic[SampleT]):
    """A ring of rows, sampled with replacement, uniformly or by priority; see Priorities."""

    def __init__(
        self,
        capacity: int,
        spec: BehaviorSpec,
        steps: Arrays,
        alpha: float | None,
        sensors: Sequence[int] | None = None,
    ) -> None:
        """alpha: exponent of the priorities; None samples uniformly. steps: as for Ring.

        spec: what is kept of agents; sensors: which sensors of their trajectories these are, None for all.
        """
        finals = observation_columns(spec, FIRST_SEGMENTS)
        finals["allowed_actions"] = np.empty((FIRST_SEGMENTS, spec.action_spec.mask_size), np.bool_)
        finals["terminated"] = np.empty(FIRST_SEGMENTS, np.bool_)
        super().__init__(capacity, steps, finals)
        self._sensors = range(len(spec.observation_specs)) if sensors is None else sensors
        self._sensor_columns = [f"observations.{index}" for index in range(len(self._sensors))]
        self._row_priorities = None if alpha is None else Priorities(capacity, alpha)
        self.prioritized = alpha is not None
        """Whether ``reprioritize`` has an effect."""

    @property
    def largest_priority(self) -> float | None:
        """The largest p^α of a row; None without priorities."""
        return None if self._row_priorities is None else self._row_priorities.largest

    def add(self, trajectories: Trajectories) -> Rows:
        """Adds finished trajectories. Returns their rows, at most ``capacity``.

        Raises ValueError if trajectories lack a column of the buffer.
        """
        rows = self._write_rows(trajectories)
        if self._row_priorities is not None:
            self._row_priorities.add(rows)
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> SampleT:
        """Samples ``count`` rows. Raises ValueError if the buffer is empty.

        beta: exponent of the importance weights of prioritized rows; 1 corrects the whole bias.
        """
        return self._gather(*self.draw(count, rng, beta))

    def draw(
        self, count: int, rng: np.random.Generator, beta: float
    ) -> tuple[Rows, NDArray[np.float32] | None]:
        """Draws the rows of a sample, and their importance weights, None for uniform sampling. Shapes [count].

        Raises ValueError if the buffer is empty. A plugin's buffer may override it.
        """
        if self._row_priorities is None:
            return rng.integers(self._size, size=count), None
        return self._row_priorities.sample(count, len(self), rng, beta)

    def most_together(self, count: int) -> int:
        """Number of samples of ``count`` rows to sample together; 1 if a sample may depend on the step before."""
        plain = type(self).sample is ReplayBuffer.sample and type(self).draw is ReplayBuffer.draw
        if self.prioritized or not plain:
            return 1
        row_bytes = sum(column[:1].nbytes for column in self._steps.values())
        return max(_MOST_BYTES // (count * row_bytes), 1)

    def sample_together(self, number: int, count: int, rng: np.random.Generator) -> SampleT:
        """Samples ``count`` rows ``number`` times, end to end: many small operations are made once for all."""
        return self._gather(np.concatenate([self.draw(count, rng, 1.0)[0] for _ in range(number)]), None)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Sets the priorities of a sample's rows. errors: |δ| of the critic, unweighted. Shapes [B]."""
        if self._row_priorities is not None:
            self._row_priorities.update(rows, errors)

    def state(self) -> Arrays:
        """The whole buffer, see Ring.state, and its priorities."""
        if self._row_priorities is None:
            return super().state()
        return {**super().state(), "priorities": self._row_priorities[np.arange(len(self))]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Restores a state, see Ring.load_state. After a uniform buffer's state all priorities are equal."""
        kept = super().load_state(state)
        if self._row_priorities is not None:
            priorities = state["priorities"][kept] if "priorities" in state else np.ones(len(kept))
            self._row_priorities.replace(np.arange(len(kept)), priorities)
        return kept

    @abstractmethod
    def _write_rows(self, trajectories: Trajectories) -> Rows:
        """Writes trajectories into the ring. Returns their rows."""

    def _finals_of(self, trajectories: Trajectories) -> Arrays:
        """The columns with one entry for each trajectory."""
        return {
            **observation_arrays(tuple(trajectories.final_observations[i] for i in self._sensors)),
            "allowed_actions": trajectories.final_allowed_actions,
            "terminated": trajectories.terminated,
        }

    @abstractmethod
    def _gather(self, rows: Rows, weights: NDArray[np.float32] | None) -> SampleT:
        """Returns the sample of these rows. weights: of each row; None if all are equal. Shapes [B]."""

    def single_steps(self, rows: Rows, ahead: int) -> SingleSteps:
        """Returns the single steps of the targets of these rows, at most ``ahead`` of each agent. rows: [B]."""
        at, exists, elapsed = self._steps_ahead(rows, ahead)
        places = np.nonzero(exists)
        taken = (at[places], *places[2:])
        successors, terminated = self._after(*taken)
        return SingleSteps(
            places=places,
            **self._decisions(taken, successors),
            task_rewards=self._steps["task_rewards"][taken],
            terminated=terminated,
            elapsed=None if elapsed is None else elapsed[places],
        )

    @abstractmethod
    def _steps_ahead(self, rows: Rows, count: int) -> tuple[Rows, Bools, NDArray[np.float64] | None]:
        """Returns rows of each agent's steps whose rewards count, whether they exist, and the duration of the steps
        before, None for their number. [count, B] each, or [count, B, n] for groups."""

    @abstractmethod
    def _after(self, rows: Rows, agents: Any = None) -> tuple[NextValues, Bools]:
        """Returns the values after steps, and whether the task ended with them, [M]. agents: of groups, [M]."""

    def _decisions(self, at: Any, successors: NextValues) -> dict[str, Any]:
        """Observations, actions and next observations of steps, by their names in samples. at: index of the steps."""
        steps, sensors = self._steps, self._sensor_columns
        return {
            "observations": tuple(steps[name][at] for name in sensors),
            "next_observations": tuple(successors(name) for name in sensors),
            "continuous_actions": steps["continuous_actions"][at],
            "discrete_actions": steps["discrete_actions"][at].astype(np.int64),
        }

    def _next_values(self, following: Any, last: Any, segments: Rows) -> NextValues:
        """Returns the values one step later. following: index of the next steps.

        last: which steps are the last ones of their trajectories; segments: the numbers of these.
        """
        slots = segments % self._final_capacity

        def values_of(name: str) -> NDArray[Any]:
            values: NDArray[Any] = self._steps[name][following]
            ends = self._finals[name][slots]
            if values.dtype != ends.dtype:
                values, ends = as_floats(values), as_floats(ends)
            values[last] = ends
            return values

        return values_of

    def _wrap(self, rows: Rows) -> Rows:
        wrapped: Rows = rows % len(self._steps["segment"])
        return wrapped


def decision_columns(spec: BehaviorSpec, *rows: int) -> Arrays:
    """Returns empty columns of observations and actions, [*rows, …]."""
    actions = spec.action_spec
    return {
        **observation_columns(spec, *rows),
        "continuous_actions": np.empty((*rows, actions.continuous_size), np.float32),
        "discrete_actions": np.empty((*rows, actions.discrete_size), np.int32),
        "allowed_actions": np.empty((*rows, actions.mask_size), np.bool_),
    }
