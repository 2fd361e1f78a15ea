"""Probes of MADDPG: tiny worlds for two with a known right answer, with seeds 1 and 2, which were not picked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seeds import seeds

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

COPIES = 8
IDS = np.arange(2 * COPIES, dtype=np.int64)
ALL = np.ones(2 * COPIES, np.bool_)

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


class Pairs:
    """Copies of a world for two. A subclass says what is seen, and what a step brings."""

    choices = 2

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seen = np.zeros(2 * COPIES)
        self.scores: list[float] = []

    def see(self) -> np.ndarray:
        """Observations of all agents: [2 · COPIES]."""
        return np.zeros(2 * COPIES)

    def begin(self) -> StepBatch:
        self.seen = self.see()
        return self.rows()

    def rows(
        self,
        *,
        own: np.ndarray | float = 0.0,
        group: np.ndarray | float = 0.0,
        ends: str = "",
        who: np.ndarray = ALL,
    ) -> StepBatch:
        count = int(who.sum())
        return step_batch(
            [self.seen[who, None].astype(np.float32)],
            np.broadcast_to(np.float32(own), len(IDS))[who].astype(np.float32),
            agent_ids=IDS[who],
            allowed_actions=np.ones((count, self.choices), np.bool_),
            group_ids=1 + IDS[who] // 2,
            group_rewards=np.broadcast_to(np.float32(group), len(IDS))[who].astype(np.float32),
            **({ends: np.ones(count, np.bool_)} if ends else {}),
        )

    def ended(self, score: np.ndarray, **paid: Any) -> StepBatch:
        self.scores.append(float(score.mean()))
        return concatenate(self.rows(ends="terminated", **paid), self.begin())

    def score(self, last: int = 40) -> float:
        return float(np.mean(self.scores[-last:]))


class Differ(Pairs):
    """Pays the pair if they choose differently. Nothing is seen, so they must know their index."""

    def step(self, actions: ActionBatch) -> StepBatch:
        chosen = actions.discrete[:, 0].reshape(COPIES, 2)
        paid = (chosen[:, 0] != chosen[:, 1]).astype(float)
        return self.ended(paid, group=np.repeat(paid, 2))


class OwnCue(Pairs):
    """Pays the group for each agent that chooses its own cue: credit must find the one that earned it."""

    def see(self) -> np.ndarray:
        return self.rng.integers(2, size=2 * COPIES).astype(float)

    def step(self, actions: ActionBatch) -> StepBatch:
        right = (actions.discrete[:, 0] == self.seen).reshape(COPIES, 2).mean(axis=1)
        return self.ended(right, group=np.repeat(right, 2))


class Opposed(Pairs):
    """Pays the first of a pair for choosing 1, and the second for choosing 0: each has its own critic for that."""

    def step(self, actions: ActionBatch) -> StepBatch:
        right = (actions.discrete[:, 0] != IDS % 2).astype(float)
        return self.ended(right, own=right)


class Balance(Pairs):
    """Takes from the first of a pair the square of how far its number is from half of their cue, and from the second
    the square of the sum of both numbers: it must do the opposite of the first, which it does not see.
    """

    choices = 0

    def see(self) -> np.ndarray:
        return np.repeat(self.rng.choice([-1.0, 1.0], COPIES), 2)

    def step(self, actions: ActionBatch) -> StepBatch:
        first, second = actions.continuous[:, 0].reshape(COPIES, 2).T
        missed = np.stack([(first - 0.5 * self.seen[0::2]) ** 2, (first + second) ** 2], axis=1)
        return self.ended(-missed, own=-missed.ravel())


class Sacrifice(Pairs):
    """The first of a pair may die: then the other, which acts on for two steps, is paid 1 each step, else nothing.

    Living costs nothing and dying pays nothing, so an agent learns to die only if rewards after its death count.
    """

    def see(self) -> np.ndarray:
        self.clock = 0
        self.alive = ALL.copy()
        return np.tile([0.0, 1.0], COPIES)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.clock += 1
        if self.clock == 1:
            dies = (actions.discrete[:, 0] == 1) & (IDS % 2 == 0)
            self.alive = ~dies
            self.scores.append(2.0 * float(dies.mean()))
            return concatenate(self.rows(who=dies, ends="terminated"), self.rows(who=~dies))
        paid = np.where(IDS % 2 == 1, ~self.alive[IDS - IDS % 2], False).astype(float)
        if self.clock == 2:
            return self.rows(own=paid, who=self.alive)
        last = self.rows(own=paid, who=self.alive, ends="terminated")
        return concatenate(last, self.begin())


class Clock(Pairs):
    """Pays each agent ½ and the group 1 at each step, whatever is done; interrupted, or over, after 4 steps."""

    def __init__(self, ends: str) -> None:
        super().__init__(0)
        self.ends, self.time = ends, 0

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time % 4:
            return self.rows(own=0.5, group=1.0)
        return concatenate(self.rows(own=0.5, group=1.0, ends=self.ends), self.begin())


@each_seed
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_agents_with_actors_of_their_own_learn_to_differ(learner, live, seed: int, hard: bool) -> None:
    world = Differ(seed)
    live(learner(seed, hard_gumbel=hard), world, 250)
    assert world.score() > 0.9


def test_one_actor_learns_to_differ_with_agent_ids(learner, live) -> None:
    world = Differ(1)
    live(learner(1, share="full", agent_ids=True), world, 250)
    assert world.score() > 0.9


@each_seed
@pytest.mark.parametrize("changes", [{}, {"share": "full"}, {"replay": {"type": "prioritized"}}], ids=str)
def test_credit_for_a_group_reward_finds_its_earner(
    learner, live, seed: int, changes: dict[str, Any]
) -> None:
    world = OwnCue(seed)
    live(learner(seed, **changes), world, 250)
    assert world.score() > 0.9


@each_seed
def test_agents_may_want_opposite_things(learner, live, seed: int) -> None:
    world = Opposed(seed)
    live(learner(seed), world, 100)
    assert world.score() > 0.9


@each_seed
def test_numbers_are_found_that_suit_each_other(learner, live, seed: int) -> None:
    # Of what the others did the replay buffer knows, so it must not reach back too far.
    behavior = learner(seed, continuous=1, exploration_noise=0.3, buffer_size=600)
    live(behavior, Balance(seed), 400)
    cues = np.float32([[-1.0], [-1.0], [1.0], [1.0]])
    done = Policy(checkpoint_of(behavior)).act(cues, agent_indices=[0, 1, 0, 1]).continuous[:, 0]
    assert done == pytest.approx([-0.5, 0.5, 0.5, -0.5], abs=0.2)


@each_seed
def test_an_agent_is_credited_for_rewards_after_its_death(learner, live, seed: int) -> None:
    world = Sacrifice(seed)
    live(learner(seed, reward_mode="team_sum"), world, 200)
    assert world.score() > 0.9


def test_individual_rewards_give_no_reason_to_die(learner, live) -> None:
    world = Sacrifice(5)
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
    live(behavior, Clock(ends), 40)
    behavior.summarize(0.0)
    live(behavior, Clock(ends), 5)
    value = behavior.summarize(0.0).series["Policy/Mean Q"].mean
    assert value == pytest.approx(worth * (1.5 if mode == "individual" else 2.0), rel=0.1)
