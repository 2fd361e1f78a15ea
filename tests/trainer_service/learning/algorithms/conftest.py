"""Tiny worlds in this process, and a way to let a behavior live in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pytest
from behavior_worlds import observe

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from trainer_service.running.policy import Policy
from unity_bridge.steps import ActionBatch, StepBatch


class World(Protocol):
    def begin(self) -> StepBatch: ...

    def step(self, actions: ActionBatch) -> StepBatch: ...


@pytest.fixture
def live() -> Callable[[Behavior, World, int], None]:
    """Lets a behavior live in a world until it has learned from it so many times."""

    def run(behavior: Behavior, world: World, updates: int) -> None:
        batch = world.begin()
        while updates:
            assert not behavior.finished, "its step budget is too small for so many updates"
            observe(behavior, BehaviorTick(simulator=0, team=0, batch=batch))
            if behavior.ready_to_update():
                behavior.update()
                updates -= 1
            (actions,) = behavior.collector.act()
            batch = world.step(actions)

    return run


@pytest.fixture
def small(make_behavior: Callable[..., Behavior]) -> Callable[..., Behavior]:
    """A behavior with a small network and these hyperparameters; some keywords are of its body and its network."""

    def make(
        trainer_type: str,
        *,
        units: int = 8,
        layers: int = 1,
        normalize: bool = False,
        memory: Any = None,
        gamma: float = 0.99,
        reward_signals: Any = None,
        time_horizon: int = 16,
        max_steps: int = 10**6,
        **others: Any,
    ) -> Behavior:
        of_body = ("sizes", "continuous", "branches", "seed", "decoupled")
        body = {key: others.pop(key) for key in of_body if key in others}
        network = {"hidden_units": units, "num_layers": layers, "normalize": normalize, "memory": memory}
        return make_behavior(
            trainer_type=trainer_type,
            hyperparameters=others,
            network_settings=network,
            reward_signals=reward_signals or {"extrinsic": {"gamma": gamma, "strength": 1.0}},
            time_horizon=time_horizon,
            max_steps=max_steps,
            **body,
        )

    return make


@pytest.fixture
def choices_of() -> Callable[..., ActionBatch]:
    """The likeliest actions of a behavior."""

    def choices(behavior: Behavior, *sensors: Sequence[Sequence[float]], allowed=None) -> ActionBatch:
        observations = [np.array(sensor, np.float32) for sensor in sensors]
        return Policy(checkpoint_of(behavior)).act(observations, allowed)

    return choices
