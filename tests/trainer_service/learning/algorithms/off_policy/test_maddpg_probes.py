"""Probes of MADDPG: tiny worlds for two with a known right answer, with seeds 1 and 2, which were not picked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pair_worlds import Clock, OwnCue, Pairs, Sacrifice, differ
from seeds import seeds

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.steps import ActionBatch, StepBatch

COPIES = 8

pytestmark = pytest.mark.probe

each_seed = seeds(1, 2)


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    """A behavior that learns once per tick of eight pairs."""

    def make(seed: int, *, gamma: float = 0.99, continuous: int = 0, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 64,
            "buffer_size": 2000,
            "learning_rate": 0.01,
            "tau": 0.05,
            "steps_per_update": 2 * COPIES,
            "group_size": 2,
            **changes,
        }
        return make_behavior(
            seed=seed,
            continuous=continuous,
            trainer_type="maddpg",
            hyperparameters=hyperparameters,
            network_settings={"hidden_units": 16, "num_layers": 1},
            reward_signals={"extrinsic": {"gamma": gamma, "strength": 1.0}},
            time_horizon=16,
            max_steps=10**6,
        )

    return make


class Opposed(Pairs):
    """Pays the first of a pair for choosing 1, and the second for choosing 0: each has its own critic for that."""

    def step(self, actions: ActionBatch) -> StepBatch:
        right = (actions.discrete[:, 0] != self.ids % 2).astype(float)
        return self.ended(right, own=right)


class Balance(Pairs):
    """Takes from the first of a pair the square of how far its number is from half of their cue, and from the second
    the square of the sum of both numbers: it must do the opposite of the first, which it does not see.
    """

    choices = 0

    def see(self) -> np.ndarray:
        return np.repeat(self.rng.choice([-1.0, 1.0], self.copies), 2)

    def step(self, actions: ActionBatch) -> StepBatch:
        first, second = actions.continuous[:, 0].reshape(self.copies, 2).T
        missed = np.stack([(first - 0.5 * self.seen[0::2]) ** 2, (first + second) ** 2], axis=1)
        return self.ended(-missed, own=-missed.ravel())


@each_seed
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_agents_with_actors_of_their_own_learn_to_differ(learner, live, seed: int, hard: bool) -> None:
    world = differ(seed, COPIES)
    live(learner(seed, hard_gumbel=hard), world, 250)
    assert world.score() > 0.9


def test_one_actor_learns_to_differ_with_agent_ids(learner, live) -> None:
    world = differ(1, COPIES)
    live(learner(1, share="full", agent_ids=True), world, 250)
    assert world.score() > 0.9


@each_seed
@pytest.mark.parametrize("changes", [{}, {"share": "full"}, {"replay": {"type": "prioritized"}}], ids=str)
def test_credit_for_a_group_reward_finds_its_earner(
    learner, live, seed: int, changes: dict[str, Any]
) -> None:
    world = OwnCue(seed, COPIES)
    live(learner(seed, **changes), world, 250)
    assert world.score() > 0.9


@each_seed
def test_agents_may_want_opposite_things(learner, live, seed: int) -> None:
    world = Opposed(seed, COPIES)
    live(learner(seed), world, 100)
    assert world.score() > 0.9


@each_seed
def test_numbers_are_found_that_suit_each_other(learner, live, seed: int) -> None:
    # Of what the others did the replay buffer knows, so it must not reach back too far.
    behavior = learner(seed, continuous=1, exploration_noise=0.3, buffer_size=600)
    live(behavior, Balance(seed, COPIES), 400)
    cues = np.float32([[-1.0], [-1.0], [1.0], [1.0]])
    done = Policy(checkpoint_of(behavior)).act(cues, agent_indices=[0, 1, 0, 1]).continuous[:, 0]
    assert done == pytest.approx([-0.5, 0.5, 0.5, -0.5], abs=0.2)


@each_seed
def test_an_agent_is_credited_for_rewards_after_its_death(learner, live, seed: int) -> None:
    world = Sacrifice(seed, COPIES)
    live(learner(seed, reward_mode="team_sum"), world, 200)
    assert world.score() > 0.9


def test_individual_rewards_give_no_reason_to_die(learner, live) -> None:
    world = Sacrifice(5, COPIES)
    live(learner(5), world, 200)
    assert world.score() < 0.9


@pytest.mark.parametrize("mode", ["individual", "team_sum"])
@pytest.mark.parametrize(("ends", "worth"), [("truncated", 2.0), ("terminated", 1.6)])
def test_group_rewards_count_once_and_truncation_bootstraps(
    learner, live, ends: str, worth: float, mode: str
) -> None:
    # With γ = ½ a reward of 1 for ever is worth 2. Where one step in four is the last, and looks like the others, it is
    # Q = 1 + ½ · ¾ Q = 1.6.
    behavior = learner(1, gamma=0.5, reward_mode=mode)
    world = Clock(COPIES, steps=4, ends=ends, own=0.5, group=1.0)
    live(behavior, world, 40)
    behavior.summarize(0.0)
    live(behavior, world, 5)
    value = behavior.summarize(0.0).series["Policy/Mean Q"].mean
    assert value == pytest.approx(worth * (1.5 if mode == "individual" else 2.0), rel=0.1)
