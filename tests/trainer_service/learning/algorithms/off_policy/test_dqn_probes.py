"""Probes of Deep Q-learning: tiny worlds with a known right answer, with seeds 1 and 2, which were not picked.

Everything it does there is random, so that every action's value is met; what it would do best is asked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seeds

from trainer_service.learning.networks.policies.q_network import QNetwork
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)
ALL = np.ones(AGENTS, np.bool_)

each_seed = seeds(1, 2)
kinds = pytest.mark.parametrize(
    "kind",
    [
        {},
        {"double": False, "target_update": 25},
        {"dueling": True},
        {"replay": {"type": "prioritized"}},
        {"n_step": 3},
    ],
    ids=["double", "plain-copied", "dueling", "prioritized", "three-steps"],
)


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    """A behavior that learns once per tick of eight agents."""

    def make(*, branches: tuple[int, ...] = (2,), seed: int = 1, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 64,
            "buffer_size": 4096,
            "learning_rate": 0.003,
            "tau": 0.05,
            "steps_per_update": 8,
            "exploration_final": 1.0,
        }
        strength, horizon = changes.pop("strength", 1.0), changes.pop("time_horizon", 64)
        made: Behavior = make_behavior(
            branches=branches,
            seed=seed,
            trainer_type="dqn",
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 32, "num_layers": 2},
            reward_signals={"extrinsic": {"gamma": 0.5, "strength": strength}},
            time_horizon=horizon,
            max_steps=10**6,
        )
        return made

    return make


def q_of(behavior: Behavior, *observations: float) -> np.ndarray:
    """Values of each choice. Shape [observations, choices]."""
    hyper = behavior.settings.hyperparameters
    network = QNetwork(behavior.spec, behavior.settings.network_settings, dueling=hyper.dueling)
    network.load_state_dict(checkpoint_of(behavior).algorithm["network"])
    with torch.inference_mode():
        return network.outputs([torch.tensor(observations)[:, None]]).numpy()


def rows(observation: Any, reward: Any, allowed: np.ndarray | None = None, **ends: np.ndarray) -> StepBatch:
    seen = np.broadcast_to(np.asarray(observation, np.float32), (AGENTS,))[:, None].copy()
    paid = np.broadcast_to(np.asarray(reward, np.float32), (AGENTS,))
    allowed = np.ones((AGENTS, 2), np.bool_) if allowed is None else allowed
    return step_batch([seen], paid.copy(), agent_ids=IDS, allowed_actions=allowed, **ends)


class OneStep:
    """Episodes of one decision: what is seen is −1 or 1, and ``pay`` says what it earns."""

    def __init__(self, seed: int, pay: Callable[[np.ndarray, ActionBatch], Any], choices: int = 2) -> None:
        self.rng, self.pay = np.random.default_rng(seed), pay
        self.allowed = np.ones((AGENTS, choices), np.bool_)

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([-1.0, 1.0], AGENTS)
        return rows(self.seen, 0.0, self.allowed)

    def step(self, actions: ActionBatch) -> StepBatch:
        ended = rows(self.seen, self.pay(self.seen, actions), self.allowed, terminated=ALL)
        return concatenate(ended, self.begin())


@each_seed
@kinds
def test_each_choice_is_worth_what_it_pays(learner, live, seed: int, kind: dict[str, Any]) -> None:
    behavior = learner(seed=seed, **kind)
    live(behavior, OneStep(seed, lambda seen, actions: seen * actions.discrete[:, 0]), 125)
    assert q_of(behavior, -1.0, 1.0) == pytest.approx(np.array([[0.0, -1.0], [0.0, 1.0]]), abs=0.12)


@each_seed
def test_advantage_learning_doubles_what_the_worse_choice_lacks(learner, live, seed: int) -> None:
    behavior = learner(seed=seed, advantage_learning=0.5)
    live(behavior, OneStep(seed, lambda seen, actions: seen * actions.discrete[:, 0]), 250)
    assert q_of(behavior, -1.0, 1.0) == pytest.approx(np.array([[0.0, -2.0], [-1.0, 1.0]]), abs=0.15)


@each_seed
def test_advantage_learning_compares_with_what_is_allowed(learner, live, seed: int) -> None:
    # Half of the agents may not choose 1, which pays. Of all choices of 0 a third is of those that may:
    # Q(0) = ⅓ · ½ (Q(0) − 1), so −0.2; it would be −1 if everyone's were compared with 1.
    behavior = learner(seed=seed, advantage_learning=0.5)
    world = OneStep(seed, lambda seen, actions: actions.discrete[:, 0])
    world.allowed[::2, 1] = False
    live(behavior, world, 250)
    assert q_of(behavior, -1.0, 1.0) == pytest.approx(np.array([[-0.2, 1.0]] * 2), abs=0.12)


@each_seed
def test_of_several_branches_each_finds_its_best(learner, live, choices_of, seed: int) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        return 1.0 * (actions.discrete[:, 0] == (seen > 0)) + (actions.discrete[:, 1] == 2 * (seen > 0))

    behavior = learner(branches=(2, 3), seed=seed)
    live(behavior, OneStep(seed, pay, choices=5), 150)
    assert choices_of(behavior, [[-1.0], [1.0]]).discrete.tolist() == [[0, 0], [1, 2]]
    q = q_of(behavior, 1.0)[0]
    assert q[:2].max() + q[2:].max() == pytest.approx(2.0, abs=0.2)


class ThreeSteps:
    """Sees 0, 1, 2, whatever is done; only the last decision pays."""

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(0.0, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time < 3:
            return rows(float(self.time), 0.0)
        return concatenate(rows(0.0, 1.0, terminated=ALL), self.begin())


@each_seed
@kinds
def test_a_reward_to_come_is_worth_less(learner, live, seed: int, kind: dict[str, Any]) -> None:
    behavior = learner(seed=seed, **kind)
    live(behavior, ThreeSteps(), 175)
    assert q_of(behavior, 0.0, 1.0, 2.0).mean(axis=1) == pytest.approx([0.25, 0.5, 1.0], abs=0.1)


class NeverOver:
    """Pays 1 for every decision and is interrupted after five, or ended."""

    def __init__(self, ends: str) -> None:
        self.ends = ends

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(0.0, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time < 5:
            return rows(0.0, 1.0)
        return concatenate(rows(0.0, 1.0, **{self.ends: ALL}), self.begin())


@each_seed
@pytest.mark.parametrize(
    ("n_step", "time_horizon"),
    [(1, 2), (3, 64), *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((1, 64), (3, 2)))],
)
def test_truncation_bootstraps(learner, live, seed: int, n_step: int, time_horizon: int) -> None:
    # 1 + γ + γ² + … = 1/(1 − γ) = 2.
    behavior = learner(seed=seed, n_step=n_step, time_horizon=time_horizon)
    live(behavior, NeverOver("truncated"), 150)
    assert q_of(behavior, 0.0).mean() == pytest.approx(2.0, abs=0.15)


@each_seed
def test_termination_does_not_bootstrap(learner, live, seed: int) -> None:
    behavior = learner(seed=seed)
    live(behavior, NeverOver("terminated"), 150)
    # One step in five ends: Q = 1 + ½ · ⅘ Q.
    assert q_of(behavior, 0.0).mean() == pytest.approx(1.0 / 0.6, abs=0.15)


class LastSight:
    """Half of the agents see 0 and are interrupted at once, having earned nothing and seen 1 at last; the others see
    1, earn 1, and that is the end."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([0.0, 1.0], AGENTS)
        return rows(self.seen, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        pays = self.seen == 1.0
        return concatenate(rows(1.0, self.seen, terminated=pays, truncated=~pays), self.begin())


@each_seed
@pytest.mark.parametrize("n_step", [1, 3])
def test_an_interrupted_step_is_worth_what_was_seen_last(learner, live, seed: int, n_step: int) -> None:
    behavior = learner(seed=seed, n_step=n_step)
    live(behavior, LastSight(seed), 125)
    assert q_of(behavior, 0.0, 1.0).mean(axis=1) == pytest.approx([0.5, 1.0], abs=0.1)


class ForbiddenLater:
    """Sees −1 or 1, then 0, where the second choice pays 2; an agent that began with −1 may not choose it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.broken = 0

    def begin(self) -> StepBatch:
        self.first = True
        self.start = self.rng.choice([-1.0, 1.0], AGENTS)
        return rows(self.start, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.first:
            self.first = False
            self.allowed = np.stack([ALL, self.start > 0], axis=1)
            return rows(0.0, 0.0, self.allowed)
        self.broken += int(np.count_nonzero((actions.discrete[:, 0] == 1) & (self.start < 0)))
        paid = 2.0 * actions.discrete[:, 0]
        return concatenate(rows(9.0, paid, self.allowed, terminated=ALL), self.begin())


@each_seed
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("time_horizon", [1, 64], ids=["cut", "whole"])
def test_what_is_forbidden_next_is_worth_nothing_now(
    learner, live, seed: int, double: bool, time_horizon: int
) -> None:
    behavior = learner(seed=seed, double=double, time_horizon=time_horizon)
    world = ForbiddenLater(seed)
    live(behavior, world, 175)
    assert q_of(behavior, -1.0, 1.0).mean(axis=1) == pytest.approx([0.0, 1.0], abs=0.2)
    assert world.broken == 0


@each_seed
def test_strength_scales_values(learner, live, seed: int) -> None:
    behavior = learner(seed=seed, strength=-2.0)
    live(behavior, OneStep(seed, lambda seen, actions: seen), 250)
    assert q_of(behavior, -1.0, 1.0).mean(axis=1) == pytest.approx([2.0, -2.0], abs=0.2)


@each_seed
def test_it_ends_up_doing_what_pays(learner, live, seed: int) -> None:
    behavior = learner(seed=seed, exploration_final=0.0, exploration_steps=800)
    paid: list[float] = []

    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        earned = 1.0 * (actions.discrete[:, 0] == (seen > 0))
        paid.append(float(earned.mean()))
        return earned

    live(behavior, OneStep(seed, pay), 250)
    assert np.mean(paid[:20]) < 0.8
    assert np.mean(paid[-50:]) == 1.0
