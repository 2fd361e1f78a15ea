"""Tiny worlds in this process, and a way to let a behavior live in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pytest
import torch
from behavior_worlds import observe

from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
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
def values_of() -> Callable[..., np.ndarray]:
    """Values of observations by a behavior's critic, one row per observation."""

    def values(behavior: Behavior, *sensors: Sequence[Sequence[float]]) -> np.ndarray:
        settings, state = behavior.settings, checkpoint_of(behavior).algorithm
        network = ActorCritic(
            behavior.spec,
            settings.network_settings,
            value_heads=len(settings.reward_signals),
            shared_critic=settings.hyperparameters.shared_critic,
        )
        network.load_state_dict(state["network"])
        normalizer = ObservationNormalizer(
            behavior.spec.observation_specs, normalize=settings.network_settings.normalize
        )
        normalizer.load_state_dict(state["normalizer"])
        with torch.inference_mode():
            seen = normalizer([torch.tensor(sensor, dtype=torch.float32) for sensor in sensors])
            return network.values(seen).numpy()

    return values


@pytest.fixture
def choices_of() -> Callable[..., ActionBatch]:
    """The likeliest actions of a behavior."""

    def choices(behavior: Behavior, *sensors: Sequence[Sequence[float]], allowed=None) -> ActionBatch:
        observations = [np.array(sensor, np.float32) for sensor in sensors]
        return Policy(checkpoint_of(behavior)).act(observations, allowed)

    return choices
