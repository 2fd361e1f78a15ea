"""Learners of agents alone learn from goals that were achieved later, and go on from a checkpoint exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from goal_trajectories import SameNumber, goal_spec, goal_trajectories
from pydantic import ValidationError

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.learning.replay.hindsight import HindsightReplay
from unity_bridge.specs import ActionSpec

SMALL = {"batch_size": 10, "buffer_size": 30, "buffer_init_steps": 10, "steps_per_update": 4}
LEARNERS = ["td3", "sac", "dqn"]


def actions_of(trainer_type: str) -> ActionSpec:
    return ActionSpec(0, (2,)) if trainer_type == "dqn" else ActionSpec(2, ())


def settings_of(
    trainer_type: str, kind: str = "hindsight", replay: Mapping[str, Any] | None = None, **others: Any
) -> TrainerSettings:
    return TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {
                **SMALL,
                "replay": {"type": kind, **(replay or {})},
                "save_replay_buffer": True,
            },
            "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
            **others,
        }
    )


def learner_of(trainer_type: str, kind: str = "hindsight", seed: int = 1) -> ReplayLearner[Any]:
    compute = Compute(torch.device("cpu"), seed, goal_task=SameNumber())
    learner = make_learner(goal_spec(actions_of(trainer_type)), settings_of(trainer_type, kind), compute)
    assert isinstance(learner, ReplayLearner)
    learner.prepare(0)
    return learner


def learn(learner: ReplayLearner[Any], trainer_type: str, first: int = 0) -> dict[str, float]:
    learner.record(goal_trajectories([5, 7, 4], actions_of(trainer_type), first))
    assert learner.ready()
    return dict(learner.update(first))


@pytest.mark.parametrize("trainer_type", LEARNERS)
def test_it_learns_from_other_goals(trainer_type: str) -> None:
    learner, uniform = learner_of(trainer_type), learner_of(trainer_type, "uniform")
    assert isinstance(learner.replay.buffer, HindsightReplay)
    seen = learn(learner, trainer_type)
    assert all(np.isfinite(value) for value in seen.values())
    assert seen["Losses/Value Loss"] != learn(uniform, trainer_type)["Losses/Value Loss"]
    sample = learner.replay.undivided
    assert 0.0 in sample.task_rewards.tolist()


@pytest.mark.parametrize("trainer_type", LEARNERS)
def test_it_goes_on_as_if_it_had_not_stopped(trainer_type: str) -> None:
    straight, resumed = learner_of(trainer_type), learner_of(trainer_type, seed=99)
    learn(straight, trainer_type)
    resumed.load_state_dict(straight.state_dict())
    resumed.load_replay_state(straight.replay_state())
    for first in (16, 32):
        assert learn(straight, trainer_type, first) == learn(resumed, trainer_type, first)
    assert_equal_states(flat(straight.state_dict()), flat(resumed.state_dict()))


@pytest.mark.parametrize(
    ("trainer_type", "changes", "said"),
    [
        ("td3", {"network_settings": {"memory": {"sequence_length": 4}}}, "draws single transitions"),
        ("td3", {"hyperparameters": {"n_step": 3}}, "n_step"),
        ("sac", {"reward_signals": {"extrinsic": {}, "rnd": {}}}, "expected extrinsic alone"),
        ("dqn", {"reward_signals": {"rnd": {}}}, "expected extrinsic alone"),
        ("idqn", {}, "other buffers are for agents that learn alone"),
        ("maddpg", {}, "other buffers are for agents that learn alone"),
        ("ppo", {}, "unknown key"),
        (
            "dqn",
            {"hyperparameters": {"replay": {"type": "hindsight", "n_sampled_goal": 0}}},
            "n_sampled_goal",
        ),
        (
            "dqn",
            {"hyperparameters": {"replay": {"type": "hindsight", "goal_selection_strategy": "random"}}},
            "goal_selection_strategy",
        ),
    ],
)
def test_what_it_does_not_go_with_is_refused(trainer_type: str, changes: dict[str, Any], said: str) -> None:
    hyper = {"replay": {"type": "hindsight"}, **changes.get("hyperparameters", {})}
    given = {"trainer_type": trainer_type, **changes, "hyperparameters": hyper}
    with pytest.raises(ValidationError) as caught:
        TrainerSettings.model_validate(given)
    assert said in str(caught.value)
