"""Tiny worlds for groups that learn action values, each with a known right answer. Seeds: 1 and 2, or the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seeds

from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupNetworks, GroupQLearner
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

COPIES = 16
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


class Pairs:
    """Copies of a world for two, in which everyone has two choices."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.ids = np.arange(2 * COPIES)
        self.seen = np.zeros(2 * COPIES)
        self.scores: list[float] = []

    def rows(
        self,
        paid: np.ndarray | float = 0.0,
        of: np.ndarray | None = None,
        *,
        group: bool = True,
        ends: str = "",
    ) -> StepBatch:
        """Rows of all agents, or of those in a mask. paid: to each, as its group's reward or as its own."""
        of = np.ones(len(self.ids), np.bool_) if of is None else of
        count = int(of.sum())
        given = np.broadcast_to(np.float32(paid), len(self.ids))[of].astype(np.float32)
        return step_batch(
            [self.seen[of][:, None].astype(np.float32)],
            np.zeros(count, np.float32) if group else given,
            agent_ids=self.ids[of],
            allowed_actions=np.ones((count, 2), np.bool_),
            group_ids=1 + self.ids[of] // 2,
            group_rewards=given if group else None,
            **({ends: np.ones(count, np.bool_)} if ends else {}),
        )

    def begin(self) -> StepBatch:
        return self.rows()

    def score(self, last: int = 40) -> float:
        return float(np.mean(self.scores[-last:]))


class Table(Pairs):
    """Pays the pair by a table of their two choices, once, and then all begins anew."""

    def __init__(self, seed: int, table: list[list[float]]) -> None:
        super().__init__(seed)
        self.table = np.array(table, np.float32)

    def step(self, actions: ActionBatch) -> StepBatch:
        chosen = actions.discrete[:, 0].reshape(COPIES, 2)
        paid = self.table[chosen[:, 0], chosen[:, 1]]
        self.scores.append(float(paid.mean()))
        return concatenate(self.rows(np.repeat(paid, 2), ends="terminated"), self.begin())


def differ(seed: int) -> Table:
    """Pays agents that choose differently. Nothing is seen, so they need their index or networks of their own."""
    return Table(seed, [[0.0, 1.0], [1.0, 0.0]])


class OwnCue(Pairs):
    """Pays the group for each agent that chooses its own cue: credit must find the one that earned it."""

    def begin(self) -> StepBatch:
        self.seen = self.rng.integers(2, size=2 * COPIES).astype(float)
        return self.rows()

    def step(self, actions: ActionBatch) -> StepBatch:
        right = (actions.discrete[:, 0] == self.seen).reshape(COPIES, 2).mean(axis=1)
        self.scores.append(float(right.mean()))
        return concatenate(self.rows(np.repeat(right, 2), ends="terminated"), self.begin())


class Sacrifice(Pairs):
    """Agent 0 may die for its group: then agent 1 acts once more and is paid 1, else 0. Dying itself pays nothing."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.second = False
        self.dead = np.zeros(2 * COPIES, np.bool_)

    def begin(self) -> StepBatch:
        self.second = False
        self.seen = np.tile([0.0, 1.0], COPIES)
        return self.rows()

    def step(self, actions: ActionBatch) -> StepBatch:
        if not self.second:
            self.second = True
            self.dead = (actions.discrete[:, 0] == 1) & (self.ids % 2 == 0)
            self.scores.append(float(self.dead[::2].mean()))
            return concatenate(self.rows(of=self.dead, ends="terminated"), self.rows(of=~self.dead))
        paid = np.roll(self.dead, 1)
        return concatenate(self.rows(paid, ~self.dead, group=False, ends="terminated"), self.begin())


class Clock(Pairs):
    """Pays everyone 1 each step, whatever is done; the clock ends it after 5, so a step is worth 1/(1 − γ)."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.time = 0

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time % 5:
            return self.rows(1.0, group=False)
        return concatenate(self.rows(1.0, group=False, ends="truncated"), self.begin())


class TwoSteps(Pairs):
    """The two-step game of Rashid et al. 2018, section 6.1: agent 0 says which table pays for the second choices.

    The first pays 7 whatever is done; the second pays 8 where both choose 1, 1 where one does, and else nothing.
    """

    TABLES = np.array([[[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.chosen: np.ndarray | None = None

    def step(self, actions: ActionBatch) -> StepBatch:
        choices = actions.discrete[:, 0].reshape(COPIES, 2)
        if self.chosen is None:
            self.chosen = choices[:, 0]
            self.seen = np.repeat(1.0 - 2.0 * self.chosen, 2)
            return self.rows()
        paid = self.TABLES[self.chosen, choices[:, 0], choices[:, 1]]
        self.chosen = None
        last = self.rows(np.repeat(paid, 2), ends="terminated")
        self.seen = np.zeros(2 * COPIES)
        return concatenate(last, self.rows())


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
    world = Sacrifice(seed)
    live(make(make_behavior, learner, seed), world, 80)
    assert world.score(20) > 0.85


def test_who_learns_for_itself_sees_no_reason_to_die(make_behavior: Make, live) -> None:
    world = Sacrifice(5)
    live(make(make_behavior, "idqn", 5), world, 80)
    assert world.score(20) < 0.85


@learners
def test_a_time_limit_is_bootstrapped(make_behavior: Make, live, learner: str) -> None:
    behavior = make(make_behavior, learner, 6, gamma=0.5)
    live(behavior, Clock(6), 80)
    behavior.summarize(0.0)
    live(behavior, Clock(6), 1)
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
