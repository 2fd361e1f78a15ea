"""The reward of the task itself."""

from __future__ import annotations

import numpy as np

from trainer_service.rewards import REWARD_SOURCES
from trainer_service.rollout.trajectories import Trajectories


def test_an_agent_gets_its_own_reward_and_its_groups() -> None:
    steps = 3
    trajectories = Trajectories(
        observations=(np.zeros((steps, 1), np.float32),),
        continuous_actions=np.zeros((steps, 0), np.float32),
        discrete_actions=np.zeros((steps, 1), np.int64),
        allowed_actions=np.ones((steps, 2), np.bool_),
        log_probs=np.zeros(steps, np.float32),
        memories=np.zeros((steps, 0), np.float32),
        rewards=np.array([1.0, 0.0, -2.0], np.float32),
        group_rewards=np.array([0.0, 10.0, 20.0], np.float32),
        lengths=np.array([steps]),
        final_observations=(np.zeros((1, 1), np.float32),),
        final_memories=np.zeros((1, 0), np.float32),
        terminated=np.array([True]),
    )
    source = REWARD_SOURCES["extrinsic"](0.5, 0.9)
    assert (source.name, source.strength, source.gamma) == ("extrinsic", 0.5, 0.9)
    # Strength is for whoever weighs signals against each other: rewards come unscaled.
    assert source.rewards(trajectories).tolist() == [1.0, 10.0, 18.0]
