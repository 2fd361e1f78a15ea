"""Transitions kept for learning from them many times, the oldest of them overwritten by the newest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, as_floats

Rows = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

_FIRST_ROWS = 1024
_FIRST_PIECES = 64


@dataclass(frozen=True, slots=True, eq=False)
class SequencesOfSample:
    """How B transitions follow each other: N sequences, every one's steps in time, one sequence after the other."""

    lengths: Rows
    """Steps of each. Shape [N]; the sum is B."""

    memories: NDArray[np.float32]
    """What the agent remembered before each. Shape [N, memory size]."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """B transitions, in any order, each perhaps more than once."""

    rows: Rows
    """Where they stand in the buffer. Shape [B]."""

    weights: NDArray[np.float32] | None
    """What corrects for some having been likelier than others, at most 1; None where all were alike. Shape [B]."""

    observations: tuple[Observation, ...]
    """Seen when the agent decided, one array per sensor. Shapes [B, *sensor shape]."""

    next_observations: tuple[Observation, ...]
    """Seen next in the same episode; after its last step, what the agent saw last. Shapes as above."""

    continuous_actions: NDArray[np.float32]
    """Shape [B, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """Shape [B, branches]."""

    allowed_actions: NDArray[np.bool_]
    """When the agent decided. Shape [B, sum of branches]."""

    next_allowed_actions: NDArray[np.bool_]
    """When it decided next. Shape [B, sum of branches]."""

    task_rewards: NDArray[np.float32]
    """The agent's own and its group's. Shape [B]."""

    terminated: NDArray[np.bool_]
    """The task ended with the step: what was seen next is worth nothing. Shape [B]."""

    sequences: SequencesOfSample | None = None
    """None where every transition stands for itself."""


class Replay:
    """The last ``capacity`` transitions, drawn uniformly with replacement.

    Trajectories lie in the order in which they came, so what an agent saw next is mostly the row below; only what it
    saw after the last step of each trajectory is kept apart. A transition takes as many bytes as its observations
    (four per float, one per byte of a picture), 4 per continuous action and per branch, 1 per choice that may be
    forbidden, and 13; a trajectory takes its last observation besides. Memory grows up to that with what there is.
    """

    prioritized = False
    """Whether ``reprioritize`` changes anything."""

    def __init__(self, spec: BehaviorSpec, capacity: int) -> None:
        self.capacity = capacity
        self._sensors = len(spec.observation_specs)
        self._size = 0
        self._head = 0
        """The row that is written next."""
        self._pieces = 0
        """Trajectories that ever came: each has its number."""
        self._steps = _step_columns(spec, min(_FIRST_ROWS, capacity))
        self._finals = _final_columns(spec, _FIRST_PIECES)

    def __len__(self) -> int:
        """Transitions that can be drawn."""
        return self._size

    @property
    def bytes(self) -> int:
        """Memory that the arrays take now."""
        return sum(column.nbytes for columns in (self._steps, self._finals) for column in columns.values())

    def add(self, trajectories: Trajectories) -> Rows:
        """Takes finished trajectories in. Returns the rows where their steps stand now, at most ``capacity``."""
        count = len(trajectories)
        steps = _steps_of(trajectories, self._pieces)
        if count > self.capacity:
            steps = {name: column[count - self.capacity :] for name, column in steps.items()}
            count = self.capacity
        self._reserve(count)
        rows = (self._head + np.arange(count)) % self.capacity
        _write(self._steps, steps, rows, blank=not self._size)
        self._size = min(self.capacity, self._size + count)
        self._head = (self._head + count) % self.capacity
        self._add_finals(self._finals_of(trajectories))
        return rows

    def sample(self, count: int, rng: np.random.Generator, *, beta: float = 1.0) -> Sample:
        """Draws ``count`` transitions. Raises ValueError where there are none.

        beta: how far weights correct for some being likelier than others, if they are; 1 is all the way.
        """
        return self._gather(rng.integers(self._size, size=count), None)

    def reprioritize(self, rows: Rows, errors: NDArray[np.floating[Any]]) -> None:
        """Says how wrong the critic was about the rows of a sample: |δ|, unweighted. Shapes [B]."""

    def state(self) -> Arrays:
        """Everything in the buffer, as views where that can be: to be written, not to be kept."""
        steps = {f"steps.{name}": column[: self._size] for name, column in self._steps.items()}
        numbers = np.arange(self._first_piece, self._pieces) % self._piece_slots
        finals = {f"finals.{name}": column[numbers] for name, column in self._finals.items()}
        counters = np.array([self.capacity, self._head, self._pieces], np.int64)
        return {**steps, **finals, "counters": counters}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> Rows:
        """Continues from ``state``'s result, be it of a buffer of another capacity; then the newest are kept.

        Returns where the rows that are kept stood there. Raises KeyError or ValueError where it does not fit.
        """
        capacity, head, pieces = (int(counter) for counter in state["counters"])
        kept = np.arange(len(state["steps.piece"]))
        if len(kept) > capacity or not 0 <= head < capacity:
            raise ValueError(f"{len(kept)} rows, the next at {head}, in a buffer of {capacity}")
        if capacity != self.capacity:
            # From the oldest to the newest, for the ring closes elsewhere.
            kept = np.roll(kept, -head)[-self.capacity :]
            head = len(kept) % self.capacity
        self._size = self._head = self._pieces = 0
        self._reserve(len(kept))
        for name in self._steps:
            _write(self._steps, {name: state[f"steps.{name}"][kept]}, np.arange(len(kept)), blank=True)
        finals = {name: state[f"finals.{name}"] for name in self._finals}
        self._pieces = pieces - len(finals["terminated"])
        self._size, self._head = len(kept), head
        self._add_finals(finals)
        return kept

    @property
    def _first_piece(self) -> int:
        """The number of the oldest trajectory of which anything is left."""
        if not self._size:
            return self._pieces
        oldest = self._head if self._size == self.capacity else 0
        return int(self._steps["piece"][oldest])

    @property
    def _piece_slots(self) -> int:
        return len(self._finals["terminated"])

    def _finals_of(self, trajectories: Trajectories) -> Arrays:
        """What is kept once for each trajectory."""
        return {
            **_named(trajectories.final_observations),
            "allowed_actions": trajectories.final_allowed_actions,
            "terminated": trajectories.terminated,
        }

    def _add_finals(self, finals: Arrays) -> None:
        """Keeps what was seen after trajectories, in the places of those that are overwritten by now."""
        count = len(finals["terminated"])
        live = np.arange(min(self._first_piece, self._pieces), self._pieces)
        if len(live) + count > self._piece_slots:
            slots = max(2 * self._piece_slots, len(live) + count)
            for name, column in self._finals.items():
                grown = np.empty((slots, *column.shape[1:]), column.dtype)
                grown[live % slots] = column[live % len(column)]
                self._finals[name] = grown
        slots_of = (self._pieces + np.arange(count)) % self._piece_slots
        _write(self._finals, finals, slots_of, blank=not len(live))
        self._pieces += count

    def _reserve(self, count: int) -> None:
        """Makes room for so many more rows, as long as there is less than ``capacity``."""
        rows = len(self._steps["piece"])
        needed = min(self._head + count, self.capacity)
        if needed <= rows:
            return
        rows = min(self.capacity, max(needed, 2 * rows))
        for name, column in self._steps.items():
            grown = np.empty((rows, *column.shape[1:]), column.dtype)
            grown[: self._size] = column[: self._size]
            self._steps[name] = grown

    def _gather(self, rows: Rows, weights: NDArray[np.float32] | None) -> Sample:
        steps, finals = self._steps, self._finals
        last = np.flatnonzero(steps["last"][rows])
        pieces = steps["piece"][rows[last]] % self._piece_slots
        following = (rows + 1) % len(steps["piece"])
        terminated = np.zeros(len(rows), np.bool_)
        terminated[last] = finals["terminated"][pieces]

        def successors(name: str) -> NDArray[Any]:
            found, ends = steps[name][following], finals[name][pieces]
            if found.dtype != ends.dtype:
                found, ends = as_floats(found), as_floats(ends)
            found[last] = ends
            return found

        sensors = [f"observations.{sensor}" for sensor in range(self._sensors)]
        return Sample(
            rows=rows,
            weights=weights,
            observations=tuple(steps[name][rows] for name in sensors),
            next_observations=tuple(successors(name) for name in sensors),
            continuous_actions=steps["continuous_actions"][rows],
            discrete_actions=steps["discrete_actions"][rows].astype(np.int64),
            allowed_actions=steps["allowed_actions"][rows],
            next_allowed_actions=successors("allowed_actions"),
            task_rewards=steps["task_rewards"][rows],
            terminated=terminated,
        )


def _write(columns: Arrays, values: Arrays, rows: Rows, *, blank: bool) -> None:
    """Pictures stay bytes for as long as their sensor sends nothing else. blank: nothing is kept there yet."""
    for name, value in values.items():
        column = columns[name]
        if np.uint8 not in (value.dtype, column.dtype) or value.dtype == column.dtype:
            column[rows] = value
        elif blank:
            columns[name] = np.empty(column.shape, value.dtype)
            columns[name][rows] = value
        else:
            columns[name] = as_floats(column)
            columns[name][rows] = as_floats(value)


def _step_columns(spec: BehaviorSpec, rows: int) -> Arrays:
    actions = spec.action_spec
    return {
        **_observation_columns(spec, rows),
        "continuous_actions": np.empty((rows, actions.continuous_size), np.float32),
        "discrete_actions": np.empty((rows, actions.discrete_size), np.int32),
        "allowed_actions": np.empty((rows, actions.mask_size), np.bool_),
        "task_rewards": np.empty(rows, np.float32),
        "piece": np.empty(rows, np.int64),
        "last": np.empty(rows, np.bool_),
    }


def _final_columns(spec: BehaviorSpec, pieces: int) -> Arrays:
    return {
        **_observation_columns(spec, pieces),
        "allowed_actions": np.empty((pieces, spec.action_spec.mask_size), np.bool_),
        "terminated": np.empty(pieces, np.bool_),
    }


def _observation_columns(spec: BehaviorSpec, rows: int) -> Arrays:
    return {
        f"observations.{index}": np.empty((rows, *sensor.shape), np.float32)
        for index, sensor in enumerate(spec.observation_specs)
    }


def _steps_of(trajectories: Trajectories, first_piece: int) -> Arrays:
    lengths = trajectories.lengths
    last = np.zeros(len(trajectories), np.bool_)
    last[np.cumsum(lengths) - 1] = True
    return {
        **_named(trajectories.observations),
        "continuous_actions": trajectories.continuous_actions,
        "discrete_actions": trajectories.discrete_actions,
        "allowed_actions": trajectories.allowed_actions,
        "task_rewards": trajectories.rewards + trajectories.group_rewards,
        "piece": first_piece + np.repeat(np.arange(len(lengths)), lengths),
        "last": last,
    }


def _named(observations: tuple[Observation, ...]) -> Arrays:
    return {f"observations.{index}": sensor for index, sensor in enumerate(observations)}
