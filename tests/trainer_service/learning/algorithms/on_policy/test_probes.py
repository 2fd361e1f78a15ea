"""Tiny worlds with a known right answer: each breaks for one reason only.

A probe is learned from seeds that were not picked: 1, 2 and 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seeds import seeds
from tiny_worlds import AGENTS, ALL, IDS, Bandit, Corridor, NeverOver, either, rows

from trainer_service.learning.kernels import SLOW
from unity_bridge.simulators.scene import concatenate
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

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


@each_seed
@critics
def test_the_value_of_a_reward_of_one_is_one(
    make_behavior, live, values_of, seed: int, shared_critic: bool
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(shared_critic=shared_critic))
    live(behavior, Bandit(seed, lambda seen, actions: 1.0), updates=15)
    assert values_of(behavior, [[0.0]])[0, 0] == pytest.approx(1.0, abs=0.1)


@each_seed
@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
def test_the_value_of_an_observed_reward_is_that_reward(
    make_behavior, live, values_of, seed: int, normalize: bool
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(normalize=normalize))
    live(behavior, Bandit(seed, lambda seen, actions: seen, either), updates=15)
    assert values_of(behavior, [[-1.0], [1.0]])[:, 0] == pytest.approx([-1.0, 1.0], abs=0.1)


@each_seed
@pytest.mark.parametrize("time_horizon", [1, 64])
def test_the_value_of_a_reward_one_step_ahead_is_gamma(
    make_behavior, live, values_of, seed: int, time_horizon: int
) -> None:
    # With a horizon of 1 the first step's value is bootstrapped from the second's alone.
    settings = probe_settings(gamma=0.5, time_horizon=time_horizon)
    behavior = make_behavior(branches=(2,), seed=seed, **settings)
    live(behavior, Corridor(2), updates=20)
    assert values_of(behavior, [[0.0], [1.0]])[:, 0] == pytest.approx([0.5, 1.0], abs=0.1)


@each_seed
@critics
def test_the_choice_that_pays_is_taken(
    make_behavior, live, choices_of, seed: int, shared_critic: bool
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings(shared_critic=shared_critic))
    live(behavior, Bandit(seed, lambda seen, actions: actions.discrete[:, 0]), updates=15)
    assert choices_of(behavior, [[0.0]]).discrete.tolist() == [[1]]


@each_seed
def test_the_number_that_pays_is_found(make_behavior, live, choices_of, seed: int) -> None:
    # Best is 0.5 as the simulator gets it, a third of what is sampled.
    behavior = make_behavior(continuous=1, seed=seed, **probe_settings())
    world = Bandit(seed, lambda seen, actions: -np.square(actions.continuous[:, 0] - 0.5), choices=0)
    live(behavior, world, updates=40)
    assert choices_of(behavior, [[0.0]]).continuous[0, 0] == pytest.approx(0.5, abs=0.1)


class CopyWhatYouSee:
    """A world that pays an agent for repeating its observation; rows change their order at every tick."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([-1.0, 1.0], AGENTS)
        self.order = self.rng.permutation(AGENTS)
        return rows(self.seen[self.order], ids=IDS[self.order])

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = np.empty(AGENTS)
        paid[self.order] = actions.discrete[:, 0] == (self.seen[self.order] > 0)
        other = self.rng.permutation(AGENTS)
        ended = rows(self.seen[other], paid[other], ids=IDS[other], terminated=ALL)
        return concatenate(ended, self.begin())


@each_seed
def test_agents_whose_rows_are_permuted_copy_their_observations(
    make_behavior, live, choices_of, seed: int
) -> None:
    behavior = make_behavior(branches=(2,), seed=seed, **probe_settings())
    live(behavior, CopyWhatYouSee(seed), updates=20)
    assert choices_of(behavior, [[-1.0], [1.0]]).discrete.tolist() == [[0], [1]]


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


@each_seed
def test_a_forbidden_choice_is_never_taken_however_well_it_pays(
    make_behavior, live, choices_of, seed: int
) -> None:
    broken = 0

    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        nonlocal broken
        broken += int(np.count_nonzero((actions.discrete[:, 0] == 2) & (seen < 0)))
        return actions.discrete[:, 0]

    behavior = make_behavior(branches=(3,), seed=seed, **probe_settings())
    world = Bandit(seed, pay, either, allow=lambda seen: np.stack([ALL, ALL, seen > 0], axis=1))
    live(behavior, world, updates=20)
    assert broken == 0
    allowed = np.array([[True, True, False], [True, True, True]])
    assert choices_of(behavior, [[-1.0], [1.0]], allowed=allowed).discrete.tolist() == [[1], [2]]


@each_seed
def test_numbers_and_choices_are_learned_together(make_behavior, live, choices_of, seed: int) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        near = -np.square(actions.continuous[:, 0] - 0.5 * seen)
        first, second = actions.discrete[:, 0] == (seen > 0), actions.discrete[:, 1] == 2 * (seen > 0)
        return near + 0.3 * first + 0.3 * second

    behavior = make_behavior(continuous=1, branches=(2, 3), seed=seed, **probe_settings())
    live(behavior, Bandit(seed, pay, either, choices=5), updates=50)
    chosen = choices_of(behavior, [[-1.0], [1.0]])
    assert chosen.discrete.tolist() == [[0, 0], [1, 2]]
    assert chosen.continuous[:, 0] == pytest.approx([-0.5, 0.5], abs=0.15)
