"""The reward of the task itself."""

from __future__ import annotations

import numpy as np
import torch

from trainer_service.config.rewards import ExtrinsicSettings
from trainer_service.rewards import REWARD_SOURCES, Experience
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


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
        final_allowed_actions=np.ones((1, 2), np.bool_),
        final_memories=np.zeros((1, 0), np.float32),
        terminated=np.array([True]),
    )
    spec = BehaviorSpec((ObservationSpec("sensor", (1,)),), ActionSpec(0, (2,)))
    settings = ExtrinsicSettings(strength=0.5, gamma=0.9)
    source = REWARD_SOURCES["extrinsic"](spec, settings, torch.device("cpu"))
    assert (source.name, source.strength, source.gamma) == ("extrinsic", 0.5, 0.9)
    # Strength is for whoever weighs signals against each other: rewards come unscaled.
    experience = Experience(trajectories, torch.device("cpu"))
    assert source.record(experience).tolist() == [1.0, 10.0, 18.0]
    assert source.rewards(experience.take(torch.tensor([2, 0]))).tolist() == [18.0, 1.0]
