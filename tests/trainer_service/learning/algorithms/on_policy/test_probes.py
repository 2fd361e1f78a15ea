"""Tiny worlds with a known right answer: each breaks for one reason only.

A probe is learned from seeds that were not picked: 1, 2 and 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeds import seeds

from trainer_service.learning.kernels import SLOW
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)

each_seed = seeds(1, 2, 3)
critics = pytest.mark.parametrize("shared_critic", [False, True], ids=["own-critic", "shared-critic"])


@pytest.fixture(params=["by-hand", pytest.param("autograd", marks=pytest.mark.thorough)], autouse=True)
def gradient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How gradients are computed: every probe is learned both ways."""
    if request.param == "autograd":
        monkeypatch.setenv(SLOW, "1")


def probe_settings(**changes: Any) -> dict[str, Any]:
    """Settings that learn a probe in a second; hyperparameters and gamma may be replaced."""
    hyperparameters = {
        "batch_size": 64,
        "buffer_size": 256,
        "learning_rate": 0.005,
        "learning_rate_schedule": "constant",
        "beta": 0.001,
        "num_epoch": 4,
    }
    gamma, normalize = changes.pop("gamma", 0.99), changes.pop("normalize", False)
    horizon = changes.pop("time_horizon", 64)
    return {
        "hyperparameters": {**hyperparameters, **changes},
        "network_settings": {"hidden_units": 16, "num_layers": 1, "normalize": normalize},
        "reward_signals": {"extrinsic": {"gamma": gamma, "strength": 1.0}},
        "time_horizon": horizon,
        "max_steps": 10**6,
    }


def rows(observation: np.ndarray, reward: np.ndarray, *, ids=IDS, ends: str = "", allowed=None) -> StepBatch:
    """One row per agent; ``ends`` is nothing, 'terminated' or 'truncated'."""
    ended = np.ones(len(ids), np.bool_)
    return step_batch(
        [np.reshape(observation, (len(ids), -1)).astype(np.float32)],
        np.asarray(reward, np.float32),
        agent_ids=ids,
        allowed_actions=np.ones((len(ids), 2), np.bool_) if allowed is None else allowed,
        **({ends: ended} if ends else {}),
    )


class OneStep:
    """Episodes of one decision. Subclasses say what is observed and what is paid."""

    def __init__(self, seed: int, choices: int = 2) -> None:
        self.rng = np.random.default_rng(seed)
        self.choices = choices
        self.seen = np.zeros(AGENTS)

    def see(self) -> np.ndarray:
        return np.zeros(AGENTS)

    def pay(self, actions: ActionBatch) -> np.ndarray:
        return np.ones(AGENTS)

    def allowed(self) -> np.ndarray:
        return np.ones((AGENTS, self.choices), np.bool_)

    def begin(self) -> StepBatch:
        self.seen = self.see()
        self.mask = self.allowed()
        return rows(self.seen, np.zeros(AGENTS), allowed=self.mask)

    def step(self, actions: ActionBatch) -> StepBatch:
        terminal = rows(self.seen, self.pay(actions), ends="terminated", allowed=self.mask)
        return concatenate(terminal, self.begin())


@each_seed
@critics
def test_the_value_of_a_reward_of_one_is_one(
    make_behavior, live, values_of, seed: int, shared_critic: bool
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(shared_critic=shared_critic))
    live(behavior, OneStep(seed), updates=15)
    assert values_of(behavior, [[0.0]])[0, 0] == pytest.approx(1.0, abs=0.1)


class RewardIsSeen(OneStep):
    def see(self) -> np.ndarray:
        return self.rng.choice([-1.0, 1.0], AGENTS)

    def pay(self, actions: ActionBatch) -> np.ndarray:
        return self.seen


@each_seed
@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
def test_the_value_of_an_observed_reward_is_that_reward(
    make_behavior, live, values_of, seed: int, normalize: bool
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(normalize=normalize))
    live(behavior, RewardIsSeen(seed), updates=15)
    assert values_of(behavior, [[-1.0], [1.0]])[:, 0] == pytest.approx([-1.0, 1.0], abs=0.1)


class TwoSteps:
    """A world of two steps, observed as 0 and 1; only the second decision pays."""

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(np.zeros(AGENTS), np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time == 1:
            return rows(np.ones(AGENTS), np.zeros(AGENTS))
        return concatenate(rows(np.zeros(AGENTS), np.ones(AGENTS), ends="terminated"), self.begin())


@each_seed
@pytest.mark.parametrize("time_horizon", [1, 64])
def test_the_value_of_a_reward_one_step_ahead_is_gamma(
    make_behavior, live, values_of, seed: int, time_horizon: int
) -> None:
    # With a horizon of 1 the first step's value is bootstrapped from the second's alone.
    settings = probe_settings(gamma=0.5, time_horizon=time_horizon)
    behavior = make_behavior(branches=(2,), seed=seed, **settings)
    live(behavior, TwoSteps(), updates=20)
    assert values_of(behavior, [[0.0], [1.0]])[:, 0] == pytest.approx([0.5, 1.0], abs=0.1)


class ActionIsPaid(OneStep):
    def pay(self, actions: ActionBatch) -> np.ndarray:
        if actions.continuous.shape[1]:
            return -np.square(actions.continuous[:, 0] - 0.5)
        return actions.discrete[:, 0]


@each_seed
@critics
def test_the_choice_that_pays_is_taken(
    make_behavior, live, choices_of, seed: int, shared_critic: bool
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(shared_critic=shared_critic))
    live(behavior, ActionIsPaid(seed), updates=15)
    assert choices_of(behavior, [[0.0]]).discrete.tolist() == [[1]]


@each_seed
def test_the_number_that_pays_is_found(make_behavior, live, choices_of, seed: int) -> None:
    # Best is 0.5 as the simulator gets it, a third of what is sampled.
    behavior = make_behavior(continuous=1, seed=seed, **probe_settings())
    world = ActionIsPaid(seed, choices=0)
    live(behavior, world, updates=40)
    assert choices_of(behavior, [[0.0]]).continuous[0, 0] == pytest.approx(0.5, abs=0.1)


class CopyWhatYouSee:
    """A world that pays an agent for repeating its observation; rows change their order at every tick."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([-1.0, 1.0], AGENTS)
        self.order = self.rng.permutation(AGENTS)
        return rows(self.seen[self.order], np.zeros(AGENTS), ids=IDS[self.order])

    def step(self, actions: ActionBatch) -> StepBatch:
        copied = actions.discrete[:, 0] == (self.seen[self.order] > 0)
        paid = np.empty(AGENTS)
        paid[self.order] = copied
        other = self.rng.permutation(AGENTS)
        ended = rows(self.seen[other], paid[other], ids=IDS[other], ends="terminated")
        return concatenate(ended, self.begin())


@each_seed
def test_agents_whose_rows_are_permuted_copy_their_observations(
    make_behavior, live, choices_of, seed: int
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings())
    live(behavior, CopyWhatYouSee(seed), updates=20)
    assert choices_of(behavior, [[-1.0], [1.0]]).discrete.tolist() == [[0], [1]]


class NeverOver:
    """A world that pays 1 for every decision and is truncated after five, never terminated."""

    def __init__(self, ends: str) -> None:
        self.ends = ends
        self.time = 0

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(np.zeros(AGENTS), np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time < 5:
            return rows(np.zeros(AGENTS), np.ones(AGENTS))
        return concatenate(rows(np.zeros(AGENTS), np.ones(AGENTS), ends=self.ends), self.begin())


@each_seed
@pytest.mark.parametrize("time_horizon", [3, 64])
def test_truncation_bootstraps(make_behavior, live, values_of, seed: int, time_horizon: int) -> None:
    # 1 + γ + γ² + … = 1/(1 − γ) = 2. Were it an end, no value could exceed 1 + γ + … + γ⁴ = 1.94, and the
    # mean over the five indistinguishable steps would be about 1.6.
    settings = probe_settings(gamma=0.5, time_horizon=time_horizon)
    behavior = make_behavior(branches=(2,), seed=seed, **settings)
    live(behavior, NeverOver("truncated"), updates=30)
    assert values_of(behavior, [[0.0]])[0, 0] == pytest.approx(2.0, abs=0.1)


@each_seed
def test_termination_does_not_bootstrap(make_behavior, live, values_of, seed: int) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(gamma=0.5))
    live(behavior, NeverOver("terminated"), updates=30)
    # The mean of 1, 1.5, 1.75, 1.875 and 1.9375.
    assert values_of(behavior, [[0.0]])[0, 0] == pytest.approx(1.6125, abs=0.1)


class BestIsForbidden(OneStep):
    """Three choices, the last of which pays most and is allowed only where 1 is observed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choices=3)
        self.broken = 0

    def see(self) -> np.ndarray:
        return self.rng.choice([0.0, 1.0], AGENTS)

    def allowed(self) -> np.ndarray:
        allowed = np.ones((AGENTS, 3), np.bool_)
        allowed[:, 2] = self.seen > 0
        return allowed

    def pay(self, actions: ActionBatch) -> np.ndarray:
        chosen = actions.discrete[:, 0]
        self.broken += int(np.count_nonzero(~self.mask[np.arange(AGENTS), chosen]))
        return chosen


@each_seed
def test_a_forbidden_choice_is_never_taken_however_well_it_pays(
    make_behavior, live, choices_of, seed: int
) -> None:
    behavior = make_behavior(branches=(3,), seed=seed, **probe_settings())
    world = BestIsForbidden(seed)
    live(behavior, world, updates=20)
    assert world.broken == 0
    allowed = np.array([[True, True, False], [True, True, True]])
    assert choices_of(behavior, [[0.0], [1.0]], allowed=allowed).discrete.tolist() == [[1], [2]]


class Hybrid(OneStep):
    """A world that pays for a number near 0.5, and for two choices that fit the observation: both, or neither."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choices=5)

    def see(self) -> np.ndarray:
        return self.rng.choice([-1.0, 1.0], AGENTS)

    def pay(self, actions: ActionBatch) -> np.ndarray:
        near = -np.square(actions.continuous[:, 0] - 0.5 * self.seen)
        first = actions.discrete[:, 0] == (self.seen > 0)
        second = actions.discrete[:, 1] == 2 * (self.seen > 0)
        return near + 0.3 * first + 0.3 * second


@each_seed
def test_numbers_and_choices_are_learned_together(make_behavior, live, choices_of, seed: int) -> None:
    behavior = make_behavior(continuous=1, branches=(2, 3), seed=seed, **probe_settings())
    live(behavior, Hybrid(seed), updates=50)
    chosen = choices_of(behavior, [[-1.0], [1.0]])
    assert chosen.discrete.tolist() == [[0, 0], [1, 2]]
    assert chosen.continuous[:, 0] == pytest.approx([-0.5, 0.5], abs=0.15)
