"""Probes of DDPG: tiny worlds with a known right answer, with seeds 1 and 2, which were not picked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seeds

from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.deterministic_actor import ActionCritic
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)
ALL = np.ones(AGENTS, np.bool_)

pytestmark = pytest.mark.probe

each_seed = seeds(1, 2)


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    """A behavior that learns once per tick of eight agents."""

    def make(*, seed: int = 1, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 64,
            "buffer_size": 4096,
            "buffer_init_steps": 200,
            "learning_rate": 0.003,
            "tau": 0.05,
            "exploration_noise": 0.3,
            "steps_per_update": 8,
        }
        gamma, horizon = changes.pop("gamma", 0.99), changes.pop("time_horizon", 64)
        return make_behavior(
            continuous=1,
            seed=seed,
            trainer_type="ddpg",
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 32, "num_layers": 2},
            reward_signals={"extrinsic": {"gamma": gamma, "strength": 1.0}},
            time_horizon=horizon,
            max_steps=10**6,
        )

    return make


def q_of(behavior: Behavior, observations: list[float], action: float) -> list[float]:
    """The critic's values of this action."""
    critic = ActionCritic(behavior.spec, behavior.settings.network_settings)
    critic.load_state_dict(checkpoint_of(behavior).algorithm["critic"])
    seen = torch.tensor(observations)[:, None]
    with torch.inference_mode():
        return critic.forward(EncoderInput([seen]), torch.full((len(seen), 1), action)).tolist()


def rows(observation: Any, reward: Any, **ends: np.ndarray) -> StepBatch:
    seen = np.broadcast_to(np.asarray(observation, np.float32), (AGENTS,))[:, None].copy()
    paid = np.broadcast_to(np.asarray(reward, np.float32), (AGENTS,))
    return step_batch([seen], paid.copy(), agent_ids=IDS, **ends)


class OneStep:
    """Episodes of one decision, in which −1 or 1 is seen: ``pay`` says what it earns."""

    def __init__(self, seed: int, pay: Callable[[np.ndarray, np.ndarray], Any]) -> None:
        self.rng, self.pay = np.random.default_rng(seed), pay

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([-1.0, 1.0], AGENTS)
        return rows(self.seen, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = self.pay(self.seen, actions.continuous[:, 0])
        return concatenate(rows(self.seen, paid, terminated=ALL), self.begin())


@each_seed
@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_the_value_of_an_observed_reward_is_that_reward(learner, live, seed: int, replay: str) -> None:
    behavior = learner(seed=seed, replay={"type": replay})
    live(behavior, OneStep(seed, lambda seen, done: seen), 125)
    for action in (-0.5, 0.5):
        assert q_of(behavior, [-1.0, 1.0], action) == pytest.approx([-1.0, 1.0], abs=0.15)


@each_seed
def test_the_number_that_pays_is_found_in_each_situation(learner, live, choices_of, seed: int) -> None:
    behavior = learner(seed=seed)
    live(behavior, OneStep(seed, lambda seen, done: -4.0 * (done - 0.6 * seen) ** 2), 400)
    assert choices_of(behavior, [[-1.0], [1.0]]).continuous[:, 0] == pytest.approx([-0.6, 0.6], abs=0.15)


class TwoSteps:
    """Sees 0, then 1; only the second decision pays, and most for the number 0.5."""

    def begin(self) -> StepBatch:
        self.first = True
        return rows(0.0, 0.0)

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.first:
            self.first = False
            return rows(1.0, 0.0)
        paid = 1.0 - (actions.continuous[:, 0] - 0.5) ** 2
        return concatenate(rows(0.0, paid, terminated=ALL), self.begin())


@each_seed
@pytest.mark.parametrize(("time_horizon", "n_step"), [(1, 1), (64, 1), (64, 2)])
def test_a_return_one_step_ahead_is_worth_gamma(
    learner, live, choices_of, seed: int, time_horizon: int, n_step: int
) -> None:
    noise = 0.1 if n_step > 1 else 0.3  # two steps at once pay what was done then, not what is right
    behavior = learner(
        seed=seed,
        gamma=0.5,
        time_horizon=time_horizon,
        n_step=n_step,
        exploration_noise=noise,
        buffer_size=1024,
    )
    live(behavior, TwoSteps(), 250)
    assert choices_of(behavior, [[1.0]]).continuous[0, 0] == pytest.approx(0.5, abs=0.15)
    assert q_of(behavior, [0.0], 0.0) == pytest.approx([0.5], abs=0.12)


class NeverOver:
    """Pays 1 for every decision and is interrupted after five, or ended; what is seen last is like all else."""

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


@pytest.mark.parametrize(
    ("seed", "n_step"),
    [(1, 1), (1, 3), *(pytest.param(seed, 1, marks=pytest.mark.thorough) for seed in (2, 3))],
)
def test_truncation_bootstraps(learner, live, seed: int, n_step: int) -> None:
    # 1 + γ + γ² + … = 1/(1 − γ) = 2.
    behavior = learner(seed=seed, gamma=0.5, n_step=n_step)
    live(behavior, NeverOver("truncated"), 100)
    assert q_of(behavior, [0.0], 0.0) == pytest.approx([2.0], abs=0.15)


@each_seed
def test_termination_does_not_bootstrap(learner, live, seed: int) -> None:
    behavior = learner(seed=seed, gamma=0.5)
    live(behavior, NeverOver("terminated"), 100)
    # One step in five ends: Q = 1 + ½ · ⅘ Q.
    assert q_of(behavior, [0.0], 0.0) == pytest.approx([1.0 / 0.6], abs=0.15)
