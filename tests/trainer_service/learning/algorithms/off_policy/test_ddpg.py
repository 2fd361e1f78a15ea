"""How DDPG explores, learns from what it keeps, and goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import OneDecision, begin_world, observe, run_ticks

from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.deterministic_actor import ActionCritic, DeterministicActor
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import concatenate
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 4


class Endless(OneDecision):
    """Pays 1 for whatever is done, and goes on for ever with nothing new to see."""

    def __init__(self) -> None:
        super().__init__(AGENTS, choices=0)

    def begin(self) -> StepBatch:
        self.seen = np.full((AGENTS, 2), 0.5, np.float32)
        return self.rows(np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        return self.rows(np.ones(AGENTS))


class Still(Endless):
    """Episodes of one decision with nothing new to see."""

    def step(self, actions: ActionBatch) -> StepBatch:
        return concatenate(self.rows(np.ones(AGENTS), terminated=np.ones(AGENTS, np.bool_)), self.begin())


@pytest.fixture
def learner(small) -> Callable[..., Behavior]:
    sizes = {"batch_size": 16, "buffer_size": 60, "buffer_init_steps": 24, "steps_per_update": 4}
    return partial(small, "ddpg", sizes=(2,), continuous=2, normalize=True, max_steps=10_000, **sizes)


def test_at_first_actions_are_uniform_then_noise_falls(learner) -> None:
    behavior = learner(buffer_init_steps=400, exploration_noise=0.3, noise_final=0.0, exploration_steps=1000)
    world, _ = begin_world(behavior, OneDecision(AGENTS, choices=0))
    early = np.concatenate([taken(behavior, world) for _ in range(100)])
    assert abs(early.mean()) < 0.1
    assert early.std() == pytest.approx(1 / np.sqrt(3), abs=0.05)
    # 400 steps were lived through, and noise fell by 0.4 of 0.3.
    assert deviation(behavior) == pytest.approx(0.18, abs=0.03)
    run_ticks(behavior, world, world.begin(), 150)
    assert deviation(behavior) == 0.0


def deviation(behavior: Behavior) -> float:
    """Standard deviation of the actions taken now from those of the policy."""
    policy = behavior.learner
    seen, rows = np.zeros((2000, 2), np.float32), np.zeros((2000, 0), np.float32)
    done, said = (
        policy.actor.act(ActRequest([seen], np.ones((2000, 0), np.bool_), rows, sure)).continuous_actions
        for sure in (False, True)
    )
    return float((done - said).std())


def taken(behavior: Behavior, world: OneDecision) -> np.ndarray:
    (actions,) = behavior.collector.act()
    observe(behavior, BehaviorTick(0, 0, world.step(actions)))
    return actions.continuous


def test_ou_noise_drifts_within_an_episode_and_begins_at_zero(learner) -> None:
    behavior = learner(
        noise="ou", exploration_noise=0.2, buffer_init_steps=0, batch_size=5000, normalize=False
    )
    assert noise_of(behavior, Endless(), 800) == pytest.approx((0.85, 0.2), abs=0.06)
    # √(1 − 0.85²) · 0.2: the first step from 0.
    assert noise_of(behavior, Still(), 500) == pytest.approx((0.0, 0.105), abs=0.06)
    fresh = learner(noise="gaussian", exploration_noise=0.2, buffer_init_steps=0, batch_size=5000)
    assert noise_of(fresh, Endless(), 500) == pytest.approx((0.0, 0.2), abs=0.06)


def noise_of(behavior: Behavior, world: OneDecision, ticks: int) -> tuple[float, float]:
    """How alike an agent's noise is in two steps that follow each other, and its deviation."""
    behavior.collector.drop(0)
    begin_world(behavior, world)
    done = np.stack([taken(behavior, world) for _ in range(ticks)])
    done -= done.mean(axis=(0, 1))
    return float((done[1:] * done[:-1]).mean() / done.var()), float(done.std())


def test_the_critic_learns_what_the_paper_says(learner) -> None:
    behavior = learner(
        exploration_noise=0.0,
        buffer_init_steps=0,
        learning_rate=1e-20,
        normalize=False,
        time_horizon=4,
        n_step=1,
    )
    world, first = begin_world(behavior, Endless())
    before = checkpoint_of(behavior).algorithm
    run_ticks(behavior, world, first, 3)
    assert not behavior.ready_to_update()
    batch = world.step(behavior.collector.act()[0])
    observe(behavior, BehaviorTick(0, 0, batch))
    run_ticks(behavior, world, batch, 3)
    observe(behavior, BehaviorTick(0, 0, world.step(behavior.collector.act()[0])))
    assert behavior.ready_to_update()
    metrics = behavior.update()
    q = value_of(before, behavior)
    # r + γ Q'(o', μ'(o')), where nothing has changed and what comes next is what was.
    assert metrics["Losses/Value Loss"] == pytest.approx((q - (1.0 + 0.99 * q)) ** 2, rel=1e-4)
    assert metrics["Policy/Mean Q"] == pytest.approx(q, rel=1e-4)
    assert metrics["Losses/Policy Loss"] == pytest.approx(-q, rel=1e-4)


def value_of(algorithm: dict[str, Any], behavior: Behavior) -> float:
    """Q(o, μ(o)) of what is always seen."""
    settings = behavior.settings.network_settings
    actor, critic = DeterministicActor(behavior.spec, settings), ActionCritic(behavior.spec, settings)
    actor.load_state_dict(algorithm["actor"])
    critic.load_state_dict(algorithm["critic"])
    seen = [torch.full((1, 2), 0.5)]
    with torch.inference_mode():
        return float(critic.forward(EncoderInput(seen), actor.forward(EncoderInput(seen))))
