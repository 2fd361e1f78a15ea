"""A reward that chance does not find: the task's own is not enough, curiosity or novelty beside it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from behavior_worlds import observe

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)
LENGTH, DECISIONS = 30, 50
STEPS = 20_000


class Chain:
    """A walk to the right end, where 1 is paid; nothing on the way, and each wrong step must be made up for."""

    def __init__(self, seed: int) -> None:
        self.at = np.zeros(AGENTS, np.int64)
        self.time = np.random.default_rng(seed).integers(0, DECISIONS, AGENTS)
        self.arrived: list[bool] = []

    def begin(self) -> StepBatch:
        return self.rows(IDS, np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.at = np.clip(self.at + 2 * actions.discrete[:, 0] - 1, 0, LENGTH - 1)
        self.time += 1
        there = self.at == LENGTH - 1
        over = np.flatnonzero(there | (self.time >= DECISIONS))
        self.arrived += there[over].tolist()
        terminal = self.rows(over, there[over], terminated=there[over], truncated=~there[over])
        self.at[over] = self.time[over] = 0
        return concatenate(terminal, self.begin())

    def rows(self, agents: np.ndarray, rewards: np.ndarray, **ends: Any) -> StepBatch:
        return step_batch(
            [np.eye(LENGTH, dtype=np.float32)[self.at[agents]]],
            rewards.astype(np.float32),
            agent_ids=agents,
            allowed_actions=np.ones((len(agents), 2), np.bool_),
            **ends,
        )


@pytest.mark.probe
@pytest.mark.parametrize(
    ("signals", "finds_it"),
    [
        ({}, False),
        ({"curiosity": {"strength": 0.1}}, True),
        pytest.param({"rnd": {"strength": 0.3, "normalize_rewards": True}}, True, marks=pytest.mark.thorough),
    ],
    ids=["nothing-else", "curiosity", "rnd"],
)
def test_intrinsic_rewards_lead_to_a_sparse_reward(
    make_behavior, signals: dict[str, dict[str, Any]], finds_it: bool
) -> None:
    own = {"learning_rate": 1e-3, "network_settings": {"hidden_units": 32}}
    behavior = make_behavior(
        sizes=(LENGTH,),
        branches=(2,),
        hyperparameters={
            "batch_size": 64,
            "buffer_size": 512,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "constant",
            "beta": 0.01,
        },
        network_settings={"hidden_units": 32, "num_layers": 1},
        reward_signals={"extrinsic": {}, **{name: {**own, **signal} for name, signal in signals.items()}},
        max_steps=10**6,
    )
    world = walked(behavior)
    assert (np.mean(world.arrived[-50:]) > 0.8) == finds_it
    assert any(world.arrived) == finds_it


def walked(behavior: Behavior) -> Chain:
    """The chain after a behavior has lived and learned in it for so many steps."""
    world = Chain(1)
    batch = world.begin()
    while behavior.step < STEPS:
        observe(behavior, BehaviorTick(simulator=0, team=0, batch=batch))
        if behavior.ready_to_update():
            behavior.update()
        batch = world.step(behavior.collector.act()[0])
    return world
