"""Probes of Soft actor-critic: tiny worlds with a known right answer, with seeds 1 and 2, which were not picked.

Where a value is asked for, ``init_entcoef`` is 0: no entropy is worth anything then, and values are plain returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seeds

from trainer_service.config import SACSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.soft_actor import SoftCritics
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)
ALL = np.ones(AGENTS, np.bool_)

each_seed = seeds(1, 2)
NORMS: dict[str, dict[str, Any]] = {
    "none": {},
    # The moments of larger minibatches vary less, and so do the values.
    "batch": {"critic_norm": "batch", "batch_size": 256, "learning_rate": 0.001},
}
norms = pytest.mark.parametrize("norm", NORMS)
replays = pytest.mark.parametrize("replay", ["uniform", "prioritized"])


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    """A behavior that learns once per tick of eight agents."""

    def make(
        *, continuous: int = 0, branches: tuple[int, ...] = (), seed: int = 1, **changes: Any
    ) -> Behavior:
        hyperparameters = {
            "batch_size": 64,
            "buffer_size": 4096,
            "learning_rate": 0.003,
            "tau": 0.05,
            "init_entcoef": 0.1,
            "steps_per_update": 8,
        }
        gamma, normalize = changes.pop("gamma", 0.99), changes.pop("normalize", False)
        horizon = changes.pop("time_horizon", 64)
        return make_behavior(
            continuous=continuous,
            branches=branches,
            seed=seed,
            trainer_type="sac",
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 32, "num_layers": 2, "normalize": normalize},
            reward_signals={"extrinsic": {"gamma": gamma, "strength": 1.0}},
            time_horizon=horizon,
            max_steps=10**6,
        )

    return make


def q_of(behavior: Behavior, observations: list[float], continuous: float | None = None) -> np.ndarray:
    """The first critic's values of each choice, or of this number. Shape [observations, choices or 1]."""
    state = checkpoint_of(behavior).algorithm
    hyper = require_settings(behavior.settings, SACSettings)
    critics = SoftCritics(
        behavior.spec, behavior.settings.network_settings, value_heads=1, norm=hyper.critic_norm
    )
    critics.load_state_dict(state["critics"])
    seen = torch.tensor(observations)[:, None]
    if behavior.settings.network_settings.normalize:
        moments = state["normalizer"]
        name = next(key for key in moments if key.endswith("mean")).removesuffix("mean")
        scale = (moments[f"{name}sum_squares"] / moments[f"{name}rows"]).sqrt()
        seen = ((seen - moments[f"{name}mean"]) / scale).float()
    done = torch.full((len(seen), behavior.spec.action_spec.continuous_size), continuous or 0.0)
    with torch.inference_mode():
        return critics.forward(EncoderInput([seen]), done)[0, :, 0].numpy()


def rows(observation: Any, reward: Any, allowed: np.ndarray | None = None, **ends: np.ndarray) -> StepBatch:
    seen = np.broadcast_to(np.asarray(observation, np.float32), (AGENTS,))[:, None].copy()
    paid = np.broadcast_to(np.asarray(reward, np.float32), (AGENTS,))
    allowed = np.ones((AGENTS, 2), np.bool_) if allowed is None else allowed
    return step_batch([seen], paid.copy(), agent_ids=IDS, allowed_actions=allowed, **ends)


class OneStep:
    """Episodes of one decision: ``see`` draws what is seen, ``pay`` says what it earns."""

    def __init__(
        self,
        seed: int,
        pay: Callable[[np.ndarray, ActionBatch], Any],
        see: Callable[[np.random.Generator], np.ndarray] = lambda rng: np.zeros(AGENTS),
        choices: int = 2,
        allow: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.see, self.pay = see, pay
        self.allow = allow or (lambda seen: np.ones((AGENTS, choices), np.bool_))

    def begin(self) -> StepBatch:
        self.seen = self.see(self.rng)
        self.allowed = self.allow(self.seen)
        return rows(self.seen, 0.0, self.allowed)

    def step(self, actions: ActionBatch) -> StepBatch:
        ended = rows(self.seen, self.pay(self.seen, actions), self.allowed, terminated=ALL)
        return concatenate(ended, self.begin())


def either(rng: np.random.Generator) -> np.ndarray:
    return rng.choice([-1.0, 1.0], AGENTS)


@each_seed
@replays
def test_the_value_of_a_reward_of_one_is_one(learner, live, seed: int, replay: str) -> None:
    behavior = learner(branches=(2,), seed=seed, init_entcoef=0, replay={"type": replay})
    live(behavior, OneStep(seed, lambda seen, actions: 1.0), 100)
    assert q_of(behavior, [0.0])[0] == pytest.approx([1.0, 1.0], abs=0.1)


@each_seed
@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
def test_the_value_of_an_observed_reward_is_that_reward(learner, live, seed: int, normalize: bool) -> None:
    behavior = learner(continuous=1, seed=seed, init_entcoef=0, normalize=normalize)
    live(behavior, OneStep(seed, lambda seen, actions: seen, either, choices=0), 125)
    assert q_of(behavior, [-1.0, 1.0])[:, 0] == pytest.approx([-1.0, 1.0], abs=0.1)


class TwoSteps:
    """Sees 0, then 1; only the second decision pays."""

    def begin(self) -> StepBatch:
        self.first = True
        return rows(0.0, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.first:
            self.first = False
            return rows(1.0, 0.0)
        return concatenate(rows(0.0, 1.0, terminated=ALL), self.begin())


@each_seed
@norms
@pytest.mark.parametrize("time_horizon", [1, 64])
def test_the_value_of_a_reward_one_step_ahead_is_gamma(
    learner, live, seed: int, time_horizon: int, norm: str
) -> None:
    behavior = learner(
        branches=(2,), seed=seed, init_entcoef=0, gamma=0.5, time_horizon=time_horizon, **NORMS[norm]
    )
    live(behavior, TwoSteps(), 150 if norm == "none" else 1200)
    assert q_of(behavior, [0.0, 1.0]).mean(axis=1) == pytest.approx([0.5, 1.0], abs=0.1)


class NeverOver:
    """Pays 1 for every decision and is interrupted after five, or ended; what is seen last is like nothing else."""

    def __init__(self, ends: str, last: float) -> None:
        self.ends, self.last = ends, last

    def begin(self) -> StepBatch:
        self.time = 0
        return rows(0.0, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        if self.time < 5:
            return rows(0.0, 1.0)
        return concatenate(rows(self.last, 1.0, **{self.ends: ALL}), self.begin())


@each_seed
@pytest.mark.parametrize("time_horizon", [3, 64])
def test_truncation_bootstraps(learner, live, seed: int, time_horizon: int) -> None:
    # 1 + γ + γ² + … = 1/(1 − γ) = 2.
    behavior = learner(branches=(2,), seed=seed, init_entcoef=0, gamma=0.5, time_horizon=time_horizon)
    live(behavior, NeverOver("truncated", 0.0), 150)
    assert q_of(behavior, [0.0]).mean() == pytest.approx(2.0, abs=0.15)


@each_seed
def test_termination_does_not_bootstrap(learner, live, seed: int) -> None:
    behavior = learner(branches=(2,), seed=seed, init_entcoef=0, gamma=0.5)
    live(behavior, NeverOver("terminated", 0.0), 150)
    # One step in five ends: Q = 1 + ½ · ⅘ Q.
    assert q_of(behavior, [0.0]).mean() == pytest.approx(1.0 / 0.6, abs=0.15)


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
def test_an_interrupted_step_is_worth_what_was_seen_last(learner, live, seed: int) -> None:
    # Not what was seen when it was decided, which leads nowhere: 0 = ½ · 0.
    behavior = learner(branches=(2,), seed=seed, init_entcoef=0, gamma=0.5)
    live(behavior, LastSight(seed), 125)
    assert q_of(behavior, [0.0, 1.0]).mean(axis=1) == pytest.approx([0.5, 1.0], abs=0.1)


class ForbiddenLater:
    """Sees −1 or 1, then 0, where the second choice pays 2; an agent that began with −1 may not choose it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self) -> StepBatch:
        self.first = True
        self.start = either(self.rng)
        return rows(self.start, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.first:
            self.first = False
            self.allowed = np.stack([ALL, self.start > 0], axis=1)
            return rows(0.0, 0.0, self.allowed)
        paid = 2.0 * actions.discrete[:, 0]
        return concatenate(rows(9.0, paid, self.allowed, terminated=ALL), self.begin())


@each_seed
@pytest.mark.parametrize("time_horizon", [1, 64], ids=["cut", "whole"])
def test_what_is_forbidden_next_is_worth_nothing_now(learner, live, seed: int, time_horizon: int) -> None:
    behavior = learner(branches=(2,), seed=seed, init_entcoef=0, gamma=0.5, time_horizon=time_horizon)
    live(behavior, ForbiddenLater(seed), 150)
    assert q_of(behavior, [-1.0, 1.0]).mean(axis=1) == pytest.approx([0.0, 1.0], abs=0.2)


@each_seed
@replays
def test_the_choice_that_pays_is_taken(learner, live, choices_of, seed: int, replay: str) -> None:
    behavior = learner(branches=(2,), seed=seed, replay={"type": replay})
    live(behavior, OneStep(seed, lambda seen, actions: actions.discrete[:, 0]), 150)
    assert choices_of(behavior, [[0.0]]).discrete.tolist() == [[1]]


@each_seed
@norms
def test_the_number_that_pays_is_found(learner, live, choices_of, seed: int, norm: str) -> None:
    behavior = learner(continuous=1, seed=seed, **NORMS[norm])
    world = OneStep(seed, lambda seen, actions: -4.0 * (actions.continuous[:, 0] - 0.7) ** 2, choices=0)
    live(behavior, world, 400 if norm == "none" else 1200)
    assert choices_of(behavior, [[0.0]]).continuous[0, 0] == pytest.approx(0.7, abs=0.12)


@each_seed
def test_a_forbidden_choice_is_never_taken_however_well_it_pays(learner, live, choices_of, seed: int) -> None:
    broken = 0

    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        nonlocal broken
        broken += int(np.count_nonzero((actions.discrete[:, 0] == 2) & (seen < 0)))
        return actions.discrete[:, 0]

    def allow(seen: np.ndarray) -> np.ndarray:
        return np.stack([ALL, ALL, seen > 0], axis=1)

    behavior = learner(branches=(3,), seed=seed)
    live(behavior, OneStep(seed, pay, either, allow=allow), 125)
    assert broken == 0
    allowed = np.array([[True, True, False], [True, True, True]])
    assert choices_of(behavior, [[-1.0], [1.0]], allowed=allowed).discrete.tolist() == [[1], [2]]


@each_seed
def test_numbers_and_choices_are_learned_together(learner, live, choices_of, seed: int) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        near = -2.0 * np.square(actions.continuous[:, 0] - 0.5 * seen)
        first, second = actions.discrete[:, 0] == (seen > 0), actions.discrete[:, 1] == 2 * (seen > 0)
        return near + first + second

    behavior = learner(continuous=1, branches=(2, 3), seed=seed)
    live(behavior, OneStep(seed, pay, either, choices=5), 200)
    chosen = choices_of(behavior, [[-1.0], [1.0]])
    assert chosen.discrete.tolist() == [[0, 0], [1, 2]]
    assert chosen.continuous[:, 0] == pytest.approx([-0.5, 0.5], abs=0.15)


@each_seed
def test_temperatures_hold_every_kind_of_entropy_where_it_shall_be(learner, live, seed: int) -> None:
    # One of two choices pays: −Σ π ln π = 0.2 ln 2 is asked for. Of numbers: −ln π(a) = −1.
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        return actions.discrete[:, 0] - 4.0 * actions.continuous[:, 0] ** 2

    behavior = learner(continuous=1, branches=(2,), seed=seed, learning_rate=0.005)
    world = OneStep(seed, pay)
    live(behavior, world, 400)
    behavior.summarize(0.0)
    live(behavior, world, 200)
    entropy = behavior.summarize(0.0).series["Policy/Entropy"].mean
    assert entropy == pytest.approx(0.2 * np.log(2) - 1.0, abs=0.2)


@each_seed
def test_without_an_entropy_coefficient_there_never_is_one(learner, live, seed: int) -> None:
    behavior = learner(branches=(2,), seed=seed, init_entcoef=0)
    live(behavior, OneStep(seed, lambda seen, actions: actions.discrete[:, 0]), 60)
    assert behavior.summarize(0.0).series["Policy/Discrete Entropy Coeff"].mean == 0.0
