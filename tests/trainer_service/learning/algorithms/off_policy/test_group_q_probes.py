"""Tiny worlds for groups that learn action values, each with a known right answer. Seeds: 1 and 2, or the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pair_worlds import Clock, OwnCue, Pairs, Sacrifice, Table, differ
from seeds import seeds

from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupNetworks, GroupQLearner
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

LEARNERS = ["idqn", "vdn", "qmix"]
each_seed = seeds(1, 2)
learners = pytest.mark.parametrize("learner", LEARNERS)

Make = Callable[..., Behavior]


def make(make_behavior: Make, learner: str, seed: int, *, gamma: float = 0.9, **changes: Any) -> Behavior:
    return make_behavior(
        seed=seed,
        trainer_type=learner,
        hyperparameters={
            "group_size": 2,
            "batch_size": 32,
            "buffer_size": 2000,
            "learning_rate": 0.01,
            "steps_per_update": 16,
            "tau": 0.05,
            "exploration_steps": 2000,
            **changes,
        },
        network_settings={"hidden_units": 16, "num_layers": 1},
        reward_signals={"extrinsic": {"gamma": gamma, "strength": 1.0}},
        time_horizon=16,
        max_steps=10**6,
    )


class TwoSteps(Pairs):
    """The two-step game of Rashid et al. 2018, section 6.1: agent 0 says which table pays for the second choices.

    The first pays 7 whatever is done; the second pays 8 where both choose 1, 1 where one does, and else nothing.
    """

    TABLES = np.array([[[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.chosen: np.ndarray | None = None

    def step(self, actions: ActionBatch) -> StepBatch:
        choices = actions.discrete[:, 0].reshape(self.copies, 2)
        if self.chosen is None:
            self.chosen = choices[:, 0]
            self.seen = np.repeat(1.0 - 2.0 * self.chosen, 2)
            return self.rows()
        paid = self.TABLES[self.chosen, choices[:, 0], choices[:, 1]]
        self.chosen = None
        return self.ended(paid, group=np.repeat(paid, 2))


@each_seed
@learners
def test_agents_with_networks_of_their_own_learn_to_differ(
    make_behavior: Make, live, learner: str, seed: int
) -> None:
    world = differ(seed)
    live(make(make_behavior, learner, seed), world, 100)
    assert world.score() > 0.85


@learners
def test_one_network_with_agent_ids_learns_to_differ(make_behavior: Make, live, learner: str) -> None:
    world = differ(1)
    live(make(make_behavior, learner, 1, share="full", agent_ids=True), world, 100)
    assert world.score() > 0.85


@each_seed
@learners
def test_credit_for_a_group_reward_finds_its_earner(
    make_behavior: Make, live, learner: str, seed: int
) -> None:
    world = OwnCue(seed)
    live(make(make_behavior, learner, seed), world, 100)
    assert world.score() > 0.85


@each_seed
@pytest.mark.parametrize("learner", ["vdn", "qmix"])
def test_an_agent_is_credited_for_rewards_after_its_death(
    make_behavior: Make, live, learner: str, seed: int
) -> None:
    world = Sacrifice(seed, steps=1)
    live(make(make_behavior, learner, seed), world, 80)
    assert world.score(20) > 0.85


def test_who_learns_for_itself_sees_no_reason_to_die(make_behavior: Make, live) -> None:
    world = Sacrifice(5, steps=1)
    live(make(make_behavior, "idqn", 5), world, 80)
    assert world.score(20) < 0.85


@learners
def test_a_time_limit_is_bootstrapped(make_behavior: Make, live, learner: str) -> None:
    behavior = make(make_behavior, learner, 6, gamma=0.5)
    live(behavior, Clock(own=1.0), 80)
    behavior.summarize(0.0)
    live(behavior, Clock(own=1.0), 1)
    value = behavior.summarize(0.0).series["Policy/Mean Q"].mean
    assert value == pytest.approx(2.0 if learner == "idqn" else 4.0, rel=0.1)


def totals(behavior: Behavior, seen: float = 0.0) -> np.ndarray:
    """The group's value where both see a number, for each pair of choices."""
    made = behavior.learner
    assert isinstance(made, GroupQLearner)
    shown = [torch.full((4, 2, 1), seen)]
    choices = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    with torch.inference_mode():
        networks = made.networks["network"]
        assert isinstance(networks, GroupNetworks)
        q = networks.network.group_outputs(GroupInput(shown))
        values = q.gather(2, choices.unsqueeze(2)).squeeze(2)
        assert networks.mixer is not None
        # The state is what both see.
        found: np.ndarray = networks.mixer(values, shown[0].flatten(1)).numpy()
        return found


def explore(make_behavior: Make, live, learner: str, table: list[list[float]], updates: int) -> Behavior:
    """All pairs of choices come up alike, to the end."""
    behavior = make(make_behavior, learner, 1, exploration_final=1.0)
    live(behavior, Table(1, table), updates)
    return behavior


@pytest.mark.parametrize("learner", ["vdn", "qmix"])
def test_what_each_adds_is_found_where_it_adds_up(make_behavior: Make, live, learner: str) -> None:
    behavior = explore(make_behavior, live, learner, [[0, 1], [3, 4]], 150)
    assert totals(behavior) == pytest.approx([0, 1, 3, 4], abs=0.3)


def test_what_only_both_can_earn_needs_a_mixer(make_behavior: Make, live) -> None:
    together = [[0.0, 0.0], [0.0, 1.0]]
    added = totals(explore(make_behavior, live, "vdn", together, 300))
    # The best sum for a table of four equally likely pairs.
    assert added == pytest.approx([-0.25, 0.25, 0.25, 0.75], abs=0.12)
    mixed = totals(explore(make_behavior, live, "qmix", together, 500))
    assert mixed == pytest.approx([0, 0, 0, 1], abs=0.12)


@pytest.mark.parametrize(("learner", "worth", "table"), [("vdn", [6.93, 6.44], 0), ("qmix", [6.93, 7.92], 1)])
def test_the_two_step_game_is_won_with_a_mixer_only(
    make_behavior: Make, live, learner: str, worth: list[float], table: int
) -> None:
    # Where all choices come up alike, the sum that is nearest to the second table says 6.5 of its best pair.
    behavior = make(make_behavior, learner, 1, gamma=0.99, exploration_final=1.0)
    live(behavior, TwoSteps(1), 300)
    first = totals(behavior, 0.0).reshape(2, 2).max(axis=1)
    assert first == pytest.approx(worth, abs=0.3)
    assert first.argmax() == table
    if learner == "qmix":
        assert totals(behavior, -1.0) == pytest.approx([0, 1, 1, 8], abs=0.2)
