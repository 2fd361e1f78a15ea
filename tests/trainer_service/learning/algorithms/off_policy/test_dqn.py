"""How deep Q-learning keeps time, keeps its experience, goes on from a checkpoint, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, begin_world, flat, run_ticks

from trainer_service.errors import UserError
from trainer_service.learning.algorithms import DQN
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, initialize, restore
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 4


class TwoDecisions:
    """Episodes of two decisions, all in step: nothing is unfinished when one begins."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def begin(self) -> StepBatch:
        self.second = False
        return self.see(np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = self.seen[:, 0] * actions.discrete[:, 0] + actions.discrete[:, 1]
        if not self.second:
            self.second = True
            return self.see(paid)
        ended = self.rows(paid, terminated=self.seen[:, 1] > 0, truncated=self.seen[:, 1] <= 0)
        return concatenate(ended, self.begin())

    def see(self, paid: np.ndarray) -> StepBatch:
        self.seen = (3.0 * self.rng.normal(size=(AGENTS, 2))).astype(np.float32)
        return self.rows(paid)

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        allowed = np.ones((AGENTS, 5), np.bool_)
        allowed[:, 1] = self.seen[:, 1] > 0
        ids = np.arange(AGENTS, dtype=np.int64)
        return step_batch(
            [self.seen], rewards.astype(np.float32), agent_ids=ids, allowed_actions=allowed, **ends
        )


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    def make(seed: int = 1, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 16,
            "buffer_size": 60,
            "buffer_init_steps": 24,
            "steps_per_update": 4,
            "save_replay_buffer": True,
            "exploration_steps": 200,
        }
        made: Behavior = make_behavior(
            sizes=(2,),
            branches=(2, 3),
            seed=seed,
            trainer_type="dqn",
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 8, "num_layers": 1, "normalize": True},
            max_steps=10_000,
        )
        return made

    return make


def algorithm(behavior: Behavior) -> dict[str, Any]:
    return copy.deepcopy(dict(checkpoint_of(behavior).algorithm))


def test_without_it_learning_waits_until_there_is_enough_again(learner) -> None:
    trained = learner(save_replay_buffer=False)
    run_ticks(trained, *begin_world(trained, TwoDecisions()), 20)
    assert trained.learner.replay_state() is None
    resumed = learner(save_replay_buffer=False)
    restore(resumed, checkpoint_of(trained))
    before = algorithm(resumed)
    assert before["exploration"] == {"steps": 80, "episodes": 40}
    world, first = begin_world(resumed, TwoDecisions())
    batch = run_ticks(resumed, world, first, 6)
    assert algorithm(resumed)["updates"] == before["updates"] == 14
    run_ticks(resumed, world, batch, 2)
    assert algorithm(resumed)["updates"] == 16


def test_weights_start_another_run_which_explores_anew(learner) -> None:
    trained = learner()
    run_ticks(trained, *begin_world(trained, TwoDecisions()), 20)
    fresh = learner(seed=5)
    initialize(fresh, checkpoint_of(trained))
    for part in ("network", "target", "normalizer"):
        assert_equal_states(flat(algorithm(fresh)[part]), flat(algorithm(trained)[part]))
    assert algorithm(fresh)["updates"] == 0
    assert algorithm(fresh)["exploration"] == {"steps": 0, "episodes": 0}


def test_a_checkpoint_of_other_heads_is_refused(learner) -> None:
    with pytest.raises(UserError, match="does not fit the configured networks"):
        restore(learner(dueling=True), checkpoint_of(learner()))


def test_targets_follow_by_tau(learner) -> None:
    behavior = learner(tau=0.25, steps_per_update=8)
    world, batch = begin_world(behavior, TwoDecisions())
    start = algorithm(behavior)
    assert_equal_states(start["network"], start["target"])
    run_ticks(behavior, world, batch, 8)
    after = algorithm(behavior)
    assert after["updates"] == 1
    for name, target in after["target"].items():
        torch.testing.assert_close(target, 0.75 * start["target"][name] + 0.25 * after["network"][name])
    assert not torch.equal(after["network"]["q.weight"], start["network"]["q.weight"])


def test_or_they_are_copied_every_so_many_updates(learner) -> None:
    behavior = learner(target_update=4)
    world, batch = begin_world(behavior, TwoDecisions())
    start = algorithm(behavior)["target"]
    is_copy = {}
    for _ in range(16):
        batch = run_ticks(behavior, world, batch, 1)
        now = algorithm(behavior)
        is_copy[now["updates"]] = torch.equal(now["target"]["q.weight"], now["network"]["q.weight"])
        if now["updates"] < 4:
            assert_equal_states(now["target"], start)
    assert is_copy == {0: True, 2: False, 4: True, 6: False, 8: True, 10: False}


def test_exploration_falls_and_deterministic_actions_have_none(learner) -> None:
    behavior = learner(exploration_initial=1.0, exploration_final=0.0, exploration_steps=40)
    learning = behavior.learner
    assert isinstance(learning, DQN)
    seen, allowed = [np.ones((2000, 2), np.float32)], np.ones((2000, 5), np.bool_)
    nothing = np.empty((2000, 0), np.float32)

    def choices(*, deterministic: bool) -> int:
        decisions = learning.actor.act(ActRequest(seen, allowed, nothing, deterministic))
        return len(np.unique(decisions.discrete_actions, axis=0))

    assert choices(deterministic=False) == 6
    assert choices(deterministic=True) == 1
    run_ticks(behavior, *begin_world(behavior, TwoDecisions()), 10)
    assert choices(deterministic=False) == 1


def test_who_only_acts_tries_nothing_out(learner) -> None:
    behavior = learner()
    run_ticks(behavior, *begin_world(behavior, TwoDecisions()), 3)
    policy = Policy(checkpoint_of(behavior))
    seen = np.random.default_rng(2).normal(size=(400, 2)).astype(np.float32)
    np.testing.assert_array_equal(policy.act(seen, deterministic=False).discrete, policy.act(seen).discrete)


def test_what_it_reports(learner) -> None:
    behavior = learner(replay={"type": "prioritized", "beta": 0.4, "beta_updates": 10})
    world, batch = begin_world(behavior, TwoDecisions())
    batch = run_ticks(behavior, world, batch, 9)
    metrics = behavior.learner.update(100)
    assert metrics == {
        "Policy/Learning Rate": 5e-4,
        "Policy/Exploration Rate": pytest.approx(1 - 0.95 * 0.16),
    }
    run_ticks(behavior, world, batch, 4)
    series = behavior.summarize(0.0).series
    assert {
        "Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Extrinsic Reward",
        "Policy/Learning Rate", "Policy/Exploration Rate", "Replay/Beta",
    } <= set(series)  # fmt: skip
    assert 0.4 < series["Replay/Beta"].mean < 1.0


def test_the_learning_rate_falls_where_it_shall(learner) -> None:
    behavior = learner(learning_rate_schedule="linear", learning_rate=1e-3)
    assert behavior.learner.update(2500)["Policy/Learning Rate"] == pytest.approx(7.5e-4)


@pytest.mark.parametrize(("horizon", "n_step", "expected"), [(1000, 1, 8), (3, 1, 3), (1000, 5, 20)])
def test_it_wants_unfinished_trajectories_soon(
    make_behavior, horizon: int, n_step: int, expected: int
) -> None:
    behavior = make_behavior(trainer_type="dqn", hyperparameters={"n_step": n_step}, time_horizon=horizon)
    assert behavior.learner.horizon == expected


def test_numbers_are_refused(make_behavior) -> None:
    with pytest.raises(UserError, match="dqn needs discrete actions; the behavior has 2 continuous"):
        make_behavior(trainer_type="dqn", hyperparameters={}, continuous=2, branches=(3,))
