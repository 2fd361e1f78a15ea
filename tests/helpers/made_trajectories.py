"""Trajectories of a test's own making."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.steps import Observation


def trajectories_of(
    observations: Sequence[Observation], lengths: Sequence[int], *, choices: int = 0, **columns: Any
) -> Trajectories:
    """Trajectories that see this, and have these columns.

    What is not said is zero, or empty, or false; all of the choices are allowed, of one branch if there are any.
    """
    steps, segments = sum(lengths), len(lengths)
    defaults: dict[str, Any] = {
        "continuous_actions": np.zeros((steps, 0), np.float32),
        "discrete_actions": np.zeros((steps, min(choices, 1)), np.int64),
        "allowed_actions": np.ones((steps, choices), np.bool_),
        "log_probs": np.zeros(steps, np.float32),
        "memories": np.zeros((steps, 0), np.float32),
        "rewards": np.zeros(steps, np.float32),
        "group_rewards": np.zeros(steps, np.float32),
        "final_observations": tuple(
            np.zeros((segments, *each.shape[1:]), each.dtype) for each in observations
        ),
        "final_allowed_actions": np.ones((segments, choices), np.bool_),
        "final_memories": np.zeros((segments, 0), np.float32),
        "terminated": np.zeros(segments, np.bool_),
    }
    given = {**defaults, **columns}
    return Trajectories(observations=tuple(observations), lengths=np.array(lengths, np.int64), **given)
