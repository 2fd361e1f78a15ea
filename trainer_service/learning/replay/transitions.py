"""Replay buffer of single transitions. The newest overwrite the oldest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.replay_buffer import NextValues, ReplayBuffer, decision_columns
from trainer_service.learning.replay.ring import FIRST_ROWS, Arrays, observation_arrays
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Bools, Rows
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

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
        ahead, rewards, discounts = self._look_ahead(rows)
        successors, terminated = self._after(ahead)
        return Sample(
            rows=rows,
            weights=weights,
            **self._decisions(rows, successors),
            allowed_actions=self._steps["allowed_actions"][rows],
            next_allowed_actions=successors("allowed_actions"),
            task_rewards=rewards,
            terminated=terminated,
            discounts=discounts,
        )

    def _steps_ahead(self, rows: Rows, count: int) -> tuple[Rows, Bools, None]:
        """Implements ReplayBuffer. Shapes [count, B]."""
        following, exists = [rows], [np.ones(len(rows), np.bool_)]
        for _ in range(count - 1):
            exists.append(exists[-1] & ~self._steps["last"][following[-1]])
            following.append(np.where(exists[-1], self._wrap(following[-1] + 1), following[-1]))
        return np.stack(following), np.stack(exists), None

    def _after(self, rows: Rows, agents: Any = None) -> tuple[NextValues, Bools]:
        """Implements ReplayBuffer."""
        last = np.flatnonzero(self._steps["last"][rows])
        segments = self._steps["segment"][rows[last]]
        terminated = np.zeros(len(rows), np.bool_)
        terminated[last] = self._finals["terminated"][segments % self._final_capacity]
        return self._next_values(self._wrap(rows + 1), last, segments), terminated

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
            ahead[going] = self._wrap(ahead[going] + 1)
            rewards[going] += discounts[going] * steps["task_rewards"][ahead[going]]
            discounts[going] *= self._gamma
        return ahead, rewards, discounts


def _step_columns(spec: BehaviorSpec, rows: int) -> Arrays:
    return {
        **decision_columns(spec, rows),
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
