"""Trajectories in which each step achieves a goal of its own, so that a sampled goal tells which step it is from."""

from __future__ import annotations

import numpy as np
from made_trajectories import trajectories_of

from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

OWN_GOAL = -1.0
"""The goal that all of them pursue, which none achieves."""


def goal_spec(actions: ActionSpec) -> BehaviorSpec:
    names = ("achieved_goal", "desired_goal", "observation")
    return BehaviorSpec(tuple(ObservationSpec(name, (1,)) for name in names), actions)


def goal_trajectories(
    lengths: list[int], actions: ActionSpec, first: int = 0, terminated: list[bool] | None = None
) -> Trajectories:
    """Step k of all begins where k is achieved and ends where k + 1 is: so is the last one's. Each pays −1."""
    steps, segments = sum(lengths), len(lengths)
    numbers = first + np.arange(steps, dtype=np.float32)[:, None]
    last = numbers[np.cumsum(lengths) - 1] + 1
    chosen = np.random.default_rng(steps)
    return trajectories_of(
        [numbers, np.full_like(numbers, OWN_GOAL), numbers],
        lengths,
        continuous_actions=chosen.uniform(-1, 1, (steps, actions.continuous_size)).astype(np.float32),
        discrete_actions=chosen.integers(2, size=(steps, actions.discrete_size)),
        allowed_actions=np.ones((steps, actions.mask_size), np.bool_),
        rewards=np.full(steps, -1.0, np.float32),
        final_observations=(last, np.full_like(last, OWN_GOAL), last),
        final_allowed_actions=np.ones((segments, actions.mask_size), np.bool_),
        terminated=np.array(terminated if terminated is not None else [False] * segments, np.bool_),
    )


class SameNumber:
    """The task of achieving the very number that is desired: 0, else −1."""

    def __init__(self, *, ends: bool = True) -> None:
        """ends: whether the environment says when it is done."""
        self.ends = ends

    def rewards(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return (achieved == desired).all(axis=1).astype(np.float32) - 1

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        return (achieved == desired).all(axis=1) if self.ends else None

    def mismatch(self, achieved: np.ndarray, desired: np.ndarray, paid: np.ndarray) -> Exception | None:
        """None: trajectories of tests are paid for goals that they did not achieve."""
        return None
