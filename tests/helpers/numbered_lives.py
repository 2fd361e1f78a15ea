"""Trajectories whose steps are told apart by a number that they see, and earn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from made_trajectories import trajectories_of

from trainer_service.learning.rollout.trajectories import GroupIndex, Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("number", (1,)),), ActionSpec(1, (2,)))


def lives(lengths: Sequence[int], terminated: Sequence[bool], start: int = 0, **more: Any) -> Trajectories:
    """Trajectories whose steps see numbers of their own, the hundredfold at the end, and earn them."""
    numbers = start + np.arange(sum(lengths), dtype=np.float32)[:, None]
    last = numbers[np.cumsum(lengths) - 1]
    return trajectories_of(
        [numbers],
        lengths,
        choices=2,
        continuous_actions=numbers / 10,
        discrete_actions=numbers.astype(np.int64) % 2,
        rewards=numbers[:, 0],
        final_observations=(100.0 * last,),
        terminated=np.array(terminated, np.bool_),
        **more,
    )


def lives_of_group() -> Trajectories:
    """A group of two: agent 0 sees 0 to 3, the first agent 1 sees 4 and dies, and the second one sees 5 and 6.

    Agent 0 decides at four ticks, the first agent 1 at the first of them, and the second one at the last two.
    """
    index = GroupIndex(
        groups=np.array([0, 0, 0]),
        agent_indices=np.array([0, 1, 1]),
        ticks=np.array([0, 1, 2, 3, 0, 2, 3]),
        final_ticks=np.array([4, 1, 4]),
        earned=np.full(7, np.nan),
        final_earned=np.full(3, np.nan),
    )
    return lives([4, 1, 2], [False, True, False], group_index=index)
