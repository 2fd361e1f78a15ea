"""The reward of the task itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from made_trajectories import trajectories_of

from trainer_service.config.rewards import ExtrinsicSettings
from trainer_service.learning.rewards import Experience
from trainer_service.learning.rewards.extrinsic import ExtrinsicReward
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


def three_steps(lengths: Sequence[int] = (3,)) -> Trajectories:
    """Steps with rewards of 1, 10 and 18, some of them the group's."""
    return trajectories_of(
        [np.zeros((3, 1), np.float32)],
        lengths,
        choices=2,
        rewards=np.array([1.0, 0.0, -2.0], np.float32),
        group_rewards=np.array([0.0, 10.0, 20.0], np.float32),
        terminated=np.ones(len(lengths), np.bool_),
    )


def make(**settings: Any) -> ExtrinsicReward:
    spec = BehaviorSpec((ObservationSpec("sensor", (1,)),), ActionSpec(0, (2,)))
    return ExtrinsicReward(spec, ExtrinsicSettings(**settings), torch.device("cpu"))


def test_an_agent_gets_its_own_reward_and_its_groups() -> None:
    trajectories = three_steps()
    source = make(strength=0.5, gamma=0.9)
    assert (source.name, source.strength, source.gamma) == ("extrinsic", 0.5, 0.9)
    # Strength is for whoever weighs signals against each other: rewards come unscaled.
    experience = Experience(trajectories, torch.device("cpu"))
    assert source.record(experience).tolist() == [1.0, 10.0, 18.0]
    assert source.rewards(experience.take(torch.tensor([2, 0]))).tolist() == [18.0, 1.0]


def test_normalized_rewards_are_in_units_of_their_discounted_sums() -> None:
    source = make(gamma=0.5, normalize_rewards=True)
    # Episodes of two steps and of one: sums of 1, 1/2 + 10 = 10.5 and 18.
    experience = Experience(three_steps((2, 1)), torch.device("cpu"))
    first = ((1 + 10.5**2 + 18**2) / 3) ** 0.5
    assert source.record(experience) == pytest.approx(np.array([1.0, 10.0, 18.0]) / first, rel=1e-6)
    # One of three steps: sums of 1, 10.5 and 10.5/2 + 18 = 23.25, counted beside the others.
    both = ((1 + 10.5**2 + 18**2 + 1 + 10.5**2 + 23.25**2) / 6) ** 0.5
    experience = Experience(three_steps(), torch.device("cpu"))
    assert source.record(experience) == pytest.approx(np.array([1.0, 10.0, 18.0]) / both, rel=1e-6)
    assert source.scaled(np.array([both], np.float32)) == pytest.approx(1.0)
