"""Replay buffer of single transitions. The newest overwrite the oldest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.replay_buffer import ReplayBuffer
from trainer_service.learning.replay.ring import (
    FIRST_ROWS,
    Arrays,
    observation_arrays,
    observation_columns,
)
from trainer_service.learning.replay.single_steps import SingleSteps
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, as_floats

__all__ = ["Arrays", "Rows", "Sample", "SequencesOfSample", "TransitionReplay"]


@dataclass(frozen=True, slots=True, eq=False)
class SequencesOfSample:
    """The order of B transitions: N sequences end to end, each in time order."""

    lengths: Rows
    """Steps of each sequence. Shape [N]; the sum is B."""

    memories: NDArray[np.float32]
    """The agent's memory before each sequence. Shape [N, memory size]."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """B transitions, in any order. A transition may occur more than once."""

    rows: Rows
    """Their rows in the buffer. Shape [B]."""

    weights: NDArray[np.float32] | None
    """Importance weights, at most 1; None for uniform sampling. Shape [B]."""

    observations: tuple[Observation, ...]
    """Observations of the decisions, one array per sensor. Shapes [B, *sensor shape]."""

    next_observations: tuple[Observation, ...]
    """Next observations of the same episode; after its last step, the final ones. Shapes as above."""

    continuous_actions: NDArray[np.float32]
    """Shape [B, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """Shape [B, branches]."""

    allowed_actions: NDArray[np.bool_]
    """The action mask of the decision. Shape [B, sum of branches]."""

    next_allowed_actions: NDArray[np.bool_]
    """The action mask of the next decision. Shape [B, sum of branches]."""

    task_rewards: NDArray[np.float32]
    """The agent's own reward plus the group's. Shape [B]."""

    terminated: NDArray[np.bool_]
    """Whether the task ended with the step, so that the next observation has the value 0. Shape [B]."""

    sequences: SequencesOfSample | None = None
    """The sequences of these transitions; None if they are sampled individually."""

    discounts: NDArray[np.float32] | None = None
    """Discounts of the next observations' values: γᵏ after k steps; None if k is always 1. Shape [B]."""


class TransitionReplay(ReplayBuffer[Sample]):
    """Replay buffer of the last ``capacity`` transitions, each a row.

    Trajectories are stored in the order of their arrival. So an agent's next observation is usually the observation of
    the following row; only the final observation of each trajectory is stored separately. A transition takes the bytes
    of its observations (four per float, one per byte of a picture). It also takes 4 for each continuous action and
    each branch, 1 for each discrete choice, and 13 more. A trajectory also takes its final observation. Memory is
    allocated as transitions arrive.

    With n steps, a transition reaches from a decision to the observation n decisions later, or to the trajectory's end
    if that comes first. Its reward is Σ_{k<n} γᵏ r_k. These sums are computed when the transition is sampled.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        capacity: int,
        *,
        alpha: float | None = None,
        n_step: int = 1,
        gamma: float = 1.0,
    ) -> None:
        """alpha: see ReplayBuffer. n_step: number of rewards in a target. gamma: their discount."""
        rows = min(FIRST_ROWS, capacity)
        super().__init__(capacity, spec, _step_columns(spec, rows), alpha)
        self._n_step = n_step
        self._gamma = np.float32(gamma)

    def _write_rows(self, trajectories: Trajectories) -> Rows:
        return self._append(_steps_of(trajectories, self._segments), self._finals_of(trajectories))

    def _gather(self, rows: Rows, weights: NDArray[np.float32] | None) -> Sample:
        steps = self._steps
        ahead, rewards, discounts = self._look_ahead(rows)
        successors, terminated = self._after(ahead)
        sensors = self._sensor_columns
        return Sample(
            rows=rows,
            weights=weights,
            observations=tuple(steps[name][rows] for name in sensors),
            next_observations=tuple(successors(name) for name in sensors),
            continuous_actions=steps["continuous_actions"][rows],
            discrete_actions=steps["discrete_actions"][rows].astype(np.int64),
            allowed_actions=steps["allowed_actions"][rows],
            next_allowed_actions=successors("allowed_actions"),
            task_rewards=rewards,
            terminated=terminated,
            discounts=discounts,
        )

    def single_steps(self, rows: Rows, ahead: int) -> SingleSteps:
        """Implements ReplayBuffer."""
        steps = self._steps
        following, exists = [rows], [np.ones(len(rows), np.bool_)]
        for _ in range(ahead - 1):
            exists.append(exists[-1] & ~steps["last"][following[-1]])
            following.append(np.where(exists[-1], (following[-1] + 1) % len(steps["segment"]), following[-1]))
        places = np.nonzero(np.stack(exists))
        taken = np.stack(following)[places]
        successors, terminated = self._after(taken)
        return SingleSteps(
            places=places,
            observations=tuple(steps[name][taken] for name in self._sensor_columns),
            next_observations=tuple(successors(name) for name in self._sensor_columns),
            continuous_actions=steps["continuous_actions"][taken],
            discrete_actions=steps["discrete_actions"][taken].astype(np.int64),
            task_rewards=steps["task_rewards"][taken],
            terminated=terminated,
        )

    def _after(self, rows: Rows) -> tuple[Callable[[str], NDArray[Any]], NDArray[np.bool_]]:
        """Returns a function from a column name to the values after these rows; and whether the task ended, [B]."""
        steps, finals = self._steps, self._finals
        last = np.flatnonzero(steps["last"][rows])
        segments = steps["segment"][rows[last]] % self._final_capacity
        following = (rows + 1) % len(steps["segment"])
        terminated = np.zeros(len(rows), np.bool_)
        terminated[last] = finals["terminated"][segments]

        def successors(name: str) -> NDArray[Any]:
            values, ends = steps[name][following], finals[name][segments]
            if values.dtype != ends.dtype:
                values, ends = as_floats(values), as_floats(ends)
            values[last] = ends
            return values

        return successors, terminated

    def _look_ahead(self, rows: Rows) -> tuple[Rows, NDArray[np.float32], NDArray[np.float32] | None]:
        """Returns the row of each transition's last step, its discounted rewards, and γᵏ. Shapes [B]."""
        steps = self._steps
        rewards = steps["task_rewards"][rows]
        if self._n_step == 1:
            return rows, rewards, None
        discounts = np.full(len(rows), self._gamma)
        ahead = rows.copy()
        for _ in range(self._n_step - 1):
            going = np.flatnonzero(~steps["last"][ahead])
            ahead[going] = (ahead[going] + 1) % len(steps["segment"])
            rewards[going] += discounts[going] * steps["task_rewards"][ahead[going]]
            discounts[going] *= self._gamma
        return ahead, rewards, discounts


def _step_columns(spec: BehaviorSpec, rows: int) -> Arrays:
    actions = spec.action_spec
    return {
        **observation_columns(spec, rows),
        "continuous_actions": np.empty((rows, actions.continuous_size), np.float32),
        "discrete_actions": np.empty((rows, actions.discrete_size), np.int32),
        "allowed_actions": np.empty((rows, actions.mask_size), np.bool_),
        "task_rewards": np.empty(rows, np.float32),
        "segment": np.empty(rows, np.int64),
        "last": np.empty(rows, np.bool_),
    }


def _steps_of(trajectories: Trajectories, first_segment: int) -> Arrays:
    lengths = trajectories.lengths
    last = np.zeros(len(trajectories), np.bool_)
    last[np.cumsum(lengths) - 1] = True
    return {
        **observation_arrays(trajectories.observations),
        "continuous_actions": trajectories.continuous_actions,
        "discrete_actions": trajectories.discrete_actions,
        "allowed_actions": trajectories.allowed_actions,
        "task_rewards": trajectories.rewards + trajectories.group_rewards,
        "segment": first_segment + np.repeat(np.arange(len(lengths)), lengths),
        "last": last,
    }
