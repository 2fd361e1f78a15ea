"""Tiny worlds for groups, each with a known right answer. Learned from seeds that were not picked: 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pair_worlds import Clock, OwnCue, Pairs, Sacrifice, differ
from seeds import seeds

from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.observation_selection import with_group_size
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

LEARNERS = {
    "mappo": {"trainer_type": "mappo"},
    "mappo-team": {"trainer_type": "mappo", "reward_mode": "team_sum"},
    "happo": {"trainer_type": "happo", "reward_mode": "team_sum"},
    "poca": {"trainer_type": "poca"},
    "coma": {"trainer_type": "coma", "exploration_steps": 20000},
    "coma-scaled": {"trainer_type": "coma", "exploration_steps": 20000, "value_normalization": "popart"},
}

UPDATES = {"coma": 3, "coma-scaled": 3}
"""How many times as often others learn from their experience: COMA takes one pass where they take several."""

each_seed = seeds(1, 2)
VARIANTS = {"mappo", "coma-scaled"}  # of learners that are there in another form
learners = pytest.mark.parametrize(
    "learner",
    [
        pytest.param(learner, marks=pytest.mark.thorough if learner in VARIANTS else ())
        for learner in LEARNERS
    ],
)


def settings_of(learner: str, *, gamma: float = 0.99, memory: bool = False, **changes: Any) -> dict[str, Any]:
    own = dict(LEARNERS[learner])
    trainer_type = own.pop("trainer_type")
    hyperparameters = {
        "batch_size": 128,
        "buffer_size": 256,
        "learning_rate": 0.01,
        "learning_rate_schedule": "constant",
        "beta": 0.005,
        "num_epoch": 1 if trainer_type == "coma" else 4,
        "group_size": 2,
        **own,
        **changes,
    }
    if trainer_type == "coma":
        hyperparameters["target_update"] = 10
    network: dict[str, Any] = {"hidden_units": 16, "num_layers": 1}
    if memory:
        network["memory"] = {"memory_size": 8, "sequence_length": 4}
    return {
        "trainer_type": trainer_type,
        "hyperparameters": hyperparameters,
        "network_settings": network,
        "reward_signals": {"extrinsic": {"gamma": gamma, "strength": 1.0}},
        "time_horizon": 16,
        "max_steps": 10**6,
    }


def make(make_behavior: Callable[..., Behavior], learner: str, seed: int, **changes: Any) -> Behavior:
    behavior: Behavior = make_behavior(seed=seed, **settings_of(learner, **changes))
    return behavior


@each_seed
@learners
def test_agents_with_actors_of_their_own_learn_to_differ(
    make_behavior, live, learner: str, seed: int
) -> None:
    world = differ(seed)
    live(make(make_behavior, learner, seed, share="none"), world, 40 * UPDATES.get(learner, 1))
    assert world.score() > 0.9


@each_seed
def test_one_actor_learns_to_differ_with_agent_ids(make_behavior, live, seed: int) -> None:
    world = differ(seed)
    live(make(make_behavior, "mappo-team", seed, agent_ids=True), world, 40)
    assert world.score() > 0.9


def test_one_actor_without_agent_ids_cannot_differ(make_behavior, live) -> None:
    world = differ(4)
    live(make(make_behavior, "mappo-team", 4), world, 30)
    assert world.score() < 0.75


@each_seed
@learners
def test_credit_for_a_group_reward_finds_its_earner(make_behavior, live, learner: str, seed: int) -> None:
    world = OwnCue(seed)
    live(make(make_behavior, learner, seed), world, 40 * UPDATES.get(learner, 1))
    assert world.score() > 0.9


@each_seed
@pytest.mark.parametrize("learner", ["mappo-team", "happo", "poca", "coma"])
def test_an_agent_is_credited_for_rewards_after_its_death(
    make_behavior, live, learner: str, seed: int
) -> None:
    world = Sacrifice(seed)
    live(make(make_behavior, learner, seed, beta=0.001), world, 32 * UPDATES.get(learner, 1))
    assert world.score() > 0.9


def test_individual_rewards_give_no_reason_to_die(make_behavior, live) -> None:
    world = Sacrifice(5)
    behavior = make(make_behavior, "mappo", 5)
    live(behavior, world, 32)
    assert world.score() < 0.9


@pytest.mark.parametrize("learner", ["mappo", "mappo-team", "poca", "coma"])
def test_a_time_limit_is_bootstrapped(make_behavior, live, learner: str) -> None:
    behavior = make(make_behavior, learner, 6, gamma=0.8)
    live(behavior, Clock(own=1.0), 30)
    behavior.summarize(0.0)
    live(behavior, Clock(own=1.0), 1)
    value = behavior.summarize(0.0).series["Policy/Extrinsic Value Estimate"].mean
    of_group = 2.0 if learner in ("mappo-team", "poca") else 1.0
    assert value == pytest.approx(of_group * 5.0, rel=0.15)


class Bonus(Pairs):
    """A world that pays the group 1 at each step, whatever is done, and each agent 0.5 besides; no end."""

    def step(self, actions: ActionBatch) -> StepBatch:
        return self.rows(own=0.5, group=1.0)


@pytest.mark.parametrize(
    ("learner", "worth"),
    [("mappo", 1.5), ("mappo-team", 2.0), ("poca", 2.0), ("coma", 1.0), ("coma-scaled", 1.0)],
)
def test_a_reward_of_the_group_counts_once(make_behavior, live, learner: str, worth: float) -> None:
    behavior = make(make_behavior, learner, 9, gamma=0.5)
    live(behavior, Bonus(9), 20)
    behavior.summarize(0.0)
    live(behavior, Bonus(9), 1)
    value = behavior.summarize(0.0).series["Policy/Extrinsic Value Estimate"].mean
    assert value == pytest.approx(2 * worth, rel=0.1)


class LateCost(Pairs):
    """A world in which one choice earns an agent 2 at once and costs its group 1.4 before the agent's next decision.

    Agents decide every other tick: both of a pair together, or one after the other. So the choice pays, unless each
    member's report of the cost counts.
    """

    def __init__(self, seed: int, *, in_turn: bool) -> None:
        super().__init__(seed)
        self.in_turn = in_turn

    def begin(self) -> StepBatch:
        self.tick = 0
        self.own, self.told = np.zeros((2, len(self.ids)))
        self.group = np.zeros(self.copies)
        self.due: list[tuple[int, np.ndarray]] = []
        return self.message(self.asked(), ends=False)

    def asked(self) -> np.ndarray:
        """The agents that decide at this tick."""
        return self.ids[(self.tick - self.in_turn * self.ids) % 2 == 0]

    def step(self, actions: ActionBatch) -> StepBatch:
        chosen = actions.discrete[:, 0] == 1
        self.scores.append(float(chosen.mean()))
        paying = self.asked()[chosen]
        self.own[paying] += 2.0
        self.due.append((self.tick + 2, paying // 2))
        while True:
            self.tick += 1
            for tick, groups in self.due:
                if tick == self.tick or self.tick == 12 < tick:
                    np.subtract.at(self.group, groups, 1.4)
            if self.tick == 12:
                return concatenate(self.message(self.ids, ends=True), self.begin())
            if len(self.asked()):
                return self.message(self.asked(), ends=False)

    def message(self, agents: np.ndarray, *, ends: bool) -> StepBatch:
        count = len(agents)
        batch = step_batch(
            [np.zeros((count, 1), np.float32)],
            self.own[agents].astype(np.float32),
            agent_ids=agents,
            allowed_actions=np.ones((count, 2), np.bool_),
            group_ids=self.group_ids[agents],
            group_rewards=(self.group[agents // 2] - self.told[agents]).astype(np.float32),
            terminated=np.full(count, ends),
        )
        self.own[agents], self.told[agents] = 0.0, self.group[agents // 2]
        return batch


@each_seed
@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("learner", ["mappo-team", "happo", "poca", "coma"])
def test_agents_that_decide_in_turn_choose_as_those_that_decide_together(
    make_behavior, live, learner: str, in_turn: bool, seed: int
) -> None:
    world = LateCost(seed, in_turn=in_turn)
    live(make(make_behavior, learner, seed, beta=0.001, gamma=0.95), world, 24 * UPDATES.get(learner, 1))
    assert world.score() > 0.85


class BonusInTurn(Bonus):
    """A world that pays as Bonus does in two ticks, of whose agents one of each pair reports at each tick."""

    tick = 0

    def step(self, actions: ActionBatch) -> StepBatch:
        self.tick += 1
        whole = self.rows(own=0.5, group=1.0 if self.tick > 1 else 0.5)
        at = np.flatnonzero(self.ids % 2 == self.tick % 2)
        return select(whole, at)

    def begin(self) -> StepBatch:
        self.tick = 0
        return select(super().begin(), np.flatnonzero(self.ids % 2 == 0))


def select(batch: StepBatch, at: np.ndarray) -> StepBatch:
    return step_batch(
        [sensor[at] for sensor in batch.observations],
        batch.rewards[at],
        agent_ids=batch.agent_ids[at],
        allowed_actions=batch.allowed_actions[at],
        group_ids=batch.group_ids[at],
        group_rewards=batch.group_rewards[at],
    )


@pytest.mark.parametrize(("learner", "worth"), [("mappo-team", 1.0), ("poca", 1.0), ("coma", 0.5)])
def test_a_reward_of_a_group_in_turn_counts_once(make_behavior, live, learner: str, worth: float) -> None:
    # Half of the reward in half of the time: Σ_k ½ · 2 · γ^(k/2).
    behavior = make(make_behavior, learner, 9, gamma=0.5)
    world = BonusInTurn(9)
    live(behavior, world, 20)
    behavior.summarize(0.0)
    live(behavior, BonusInTurn(9), 1)
    value = behavior.summarize(0.0).series["Policy/Extrinsic Value Estimate"].mean
    assert value == pytest.approx(worth / (1 - 0.5**0.5), rel=0.1)


@pytest.mark.parametrize(
    "learner",
    [
        pytest.param(learner, marks=() if learner == "mappo-team" else pytest.mark.thorough)
        for learner in LEARNERS
    ],
)
def test_memory_learns_as_well(make_behavior, live, learner: str) -> None:
    world = OwnCue(1)
    live(make(make_behavior, learner, 1, memory=True), world, 40 * UPDATES.get(learner, 1))
    assert world.score() > 0.85


@learners
def test_a_policy_that_tells_agents_apart_needs_agent_indices(make_behavior, learner: str) -> None:
    behavior = make_behavior(seed=1, **settings_of(learner, share="none"))
    policy = Policy(checkpoint_of(behavior))
    assert policy.num_agents == 2
    with pytest.raises(ValueError, match="say their agent_indices"):
        policy.act(np.zeros((3, 1), np.float32))
    with pytest.raises(ValueError, match="at least 3 agents, expected at most 2"):
        policy.act(np.zeros((3, 1), np.float32), agent_indices=[0, 1, 2])
    assert len(policy.act(np.zeros((3, 1), np.float32), agent_indices=[0, 1, 0])) == 3


def test_the_first_message_says_how_large_groups_are(make_behavior) -> None:
    settings = make_behavior(**settings_of("mappo", group_size=None)).settings
    assert settings.hyperparameters.group_size is None
    assert with_group_size(settings, 5).hyperparameters.group_size == 5
    assert with_group_size(with_group_size(settings, 5), 2).hyperparameters.group_size == 5
    with pytest.raises(UserError, match="a group of at least 257 agents, expected"):
        with_group_size(settings, 257)
