"""Transitions for reward sources: single steps with their next observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.learning.networks.encoders.layers import observations_as_floats
from trainer_service.learning.rollout.trajectories import Trajectories


@dataclass(frozen=True, slots=True, eq=False)
class Transitions:
    """B steps, in any order. Observations are not normalized; byte observations stay bytes."""

    observations: Sequence[Tensor]
    """Observations of the decisions, one array per sensor. Shapes [B, *sensor shape]."""

    next_observations: Sequence[Tensor]
    """Next observations of the same episode, one array per sensor. Shapes [B, *sensor shape]."""

    continuous_actions: Tensor
    """As sampled. Shape [B, continuous size]."""

    discrete_actions: Tensor
    """int64 [B, branches]"""

    executed_actions: Tensor
    """The continuous actions that the simulator received, as in demonstrations. Shape [B, continuous size]."""

    task_rewards: Tensor
    """The simulator's reward: the agent's own plus the group's. Shape [B]."""

    terminated: Tensor
    """Whether the task ended with the step. bool [B]"""

    def __len__(self) -> int:
        return len(self.continuous_actions)


def as_sampled(continuous_actions: Tensor) -> Tensor:
    """Returns sampled actions unchanged, for a policy that samples the simulator's actions."""
    return continuous_actions


@dataclass(eq=False)
class Experience:
    """Trajectories as transitions on a device, assembled on access.

    The next observation of a step is the observation of the following step, or the trajectory's final observation
    after its last step. It is always of the same episode, and pictures are stored once.
    """

    trajectories: Trajectories
    device: torch.device

    env_actions: Callable[[Tensor], Tensor] = as_sampled
    """Maps sampled continuous actions to the simulator's actions."""

    def __len__(self) -> int:
        return len(self.trajectories)

    def take(self, rows: slice | Tensor) -> Transitions:
        """Returns some of the steps. rows: a slice, or int64 step numbers on any device."""
        columns = self._columns
        rows = rows.to(self.device) if isinstance(rows, Tensor) else rows
        segment = columns.ends_segment[rows]
        last = (segment >= 0).nonzero().squeeze(1)
        following = columns.next_row[rows]
        continuous = columns.continuous_actions[rows]
        terminated = torch.zeros_like(segment, dtype=torch.bool)
        terminated[last] = columns.terminated[segment[last]]
        return Transitions(
            observations=[sensor[rows] for sensor in columns.observations],
            next_observations=[
                _successors(sensor, final, following, last, segment[last])
                for sensor, final in zip(columns.observations, columns.final_observations, strict=True)
            ],
            continuous_actions=continuous,
            discrete_actions=columns.discrete_actions[rows],
            executed_actions=self.env_actions(continuous),
            task_rewards=columns.task_rewards[rows],
            terminated=terminated,
        )

    @cached_property
    def _columns(self) -> _Columns:
        trajectories = self.trajectories
        steps, segments = len(trajectories), len(trajectories.lengths)
        ends_segment = np.full(steps, -1)
        ends_segment[np.cumsum(trajectories.lengths) - 1] = np.arange(segments)
        return _Columns(
            observations=[self._tensor(sensor) for sensor in trajectories.observations],
            final_observations=[self._tensor(sensor) for sensor in trajectories.final_observations],
            continuous_actions=self._tensor(trajectories.continuous_actions),
            discrete_actions=self._tensor(trajectories.discrete_actions),
            task_rewards=self._tensor(trajectories.rewards + trajectories.group_rewards),
            terminated=self._tensor(trajectories.terminated),
            # For a trajectory's last step this row is a placeholder, but a valid index.
            next_row=self._tensor(np.minimum(np.arange(1, steps + 1), steps - 1)),
            ends_segment=self._tensor(ends_segment),
        )

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """All S steps of P trajectories."""

    observations: Sequence[Tensor]
    final_observations: Sequence[Tensor]
    continuous_actions: Tensor
    discrete_actions: Tensor
    task_rewards: Tensor

    terminated: Tensor
    """Whether the task ended with each trajectory's last step. bool [P]"""

    next_row: Tensor
    """Row of each step's next observation. int64 [S]"""

    ends_segment: Tensor
    """The trajectory that ends with the step, or −1. int64 [S]"""


def _successors(sensor: Tensor, final: Tensor, following: Tensor, last: Tensor, segment: Tensor) -> Tensor:
    successors = sensor[following]
    ends = final[segment]
    if ends.dtype != successors.dtype:
        # A sensor may send bytes in some messages and floats in others: both have the same meaning.
        successors, ends = observations_as_floats([successors, ends])
    successors[last] = ends
    return successors
