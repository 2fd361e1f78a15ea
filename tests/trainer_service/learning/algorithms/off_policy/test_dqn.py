"""How deep Q-learning keeps time, keeps its experience, goes on from a checkpoint, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from behavior_worlds import assert_equal_states, begin_world, run_ticks
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from unity_bridge.specs import ActionSpec


def world() -> ShortEpisodes:
    return ShortEpisodes(ActionSpec(0, (2, 3)))


@pytest.fixture
def learner(small) -> Callable[..., Behavior]:
    sizes = {"batch_size": 16, "buffer_size": 60, "buffer_init_steps": 24, "steps_per_update": 4}
    seen = {"sizes": (SENSOR,), "branches": (2, 3), "normalize": True}
    return partial(small, "dqn", **seen, **sizes, exploration_steps=200)


def algorithm(behavior: Behavior) -> dict[str, Any]:
    return copy.deepcopy(dict(checkpoint_of(behavior).algorithm))


def test_without_it_learning_waits_until_there_is_enough_again(learner) -> None:
    trained = learner(save_replay_buffer=False)
    run_ticks(trained, *begin_world(trained, world()), 20)
    assert trained.learner.replay_state() is None
    resumed = learner(save_replay_buffer=False)
    restore(resumed, checkpoint_of(trained))
    before = algorithm(resumed)
    assert before["exploration"] == {"steps": 72, "episodes": 24}
    task, first = begin_world(resumed, world())
    batch = run_ticks(resumed, task, first, 6)
    assert algorithm(resumed)["updates"] == before["updates"] == 12
    run_ticks(resumed, task, batch, 3)
    assert algorithm(resumed)["updates"] == 15


def test_targets_follow_by_tau(learner) -> None:
    behavior = learner(tau=0.25, steps_per_update=8)
    task, batch = begin_world(behavior, world())
    start = algorithm(behavior)
    assert_equal_states(start["network"], start["target"])
    run_ticks(behavior, task, batch, 9)
    after = algorithm(behavior)
    assert after["updates"] == 1
    for name, target in after["target"].items():
        torch.testing.assert_close(target, 0.75 * start["target"][name] + 0.25 * after["network"][name])
    assert not torch.equal(after["network"]["q.weight"], start["network"]["q.weight"])


@pytest.mark.parametrize(("horizon", "n_step", "expected"), [(1000, 1, 8), (3, 1, 3), (1000, 5, 20)])
def test_it_wants_unfinished_trajectories_soon(
    make_behavior, horizon: int, n_step: int, expected: int
) -> None:
    behavior = make_behavior(trainer_type="dqn", hyperparameters={"n_step": n_step}, time_horizon=horizon)
    assert behavior.learner.horizon == expected
