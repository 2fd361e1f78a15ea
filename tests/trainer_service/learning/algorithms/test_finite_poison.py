"""A few numbers out of all proportion, as large as may still come in, leave a learner that can go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from numpy.typing import NDArray

from trainer_service.config import HYPERPARAMETERS
from trainer_service.config.hyperparameters.off_policy import NoiseSettings
from trainer_service.learning.algorithms import ALGORITHMS
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.codec.unusable_values import LARGEST_OBSERVED, LARGEST_REWARD
from unity_bridge.steps import StepBatch

AGENTS, EPISODE, TICKS = 4, 5, 40
POISONED = (3, 11, 12, 20, 28)
"""Ticks in which one agent's reward or observation is poison."""

CONTINUOUS = {kind for kind, model in HYPERPARAMETERS.items() if issubclass(model, NoiseSettings)}
SIZES = {
    "ppo": {"batch_size": 16, "buffer_size": 64},
    "sac": {"batch_size": 8, "buffer_size": 400, "buffer_init_steps": 32},
    "random": {},
}
GROUP_SIZE = {
    kind: {"group_size": AGENTS}
    for kind, model in HYPERPARAMETERS.items()
    if model.learns_by_group and kind != "poca"
}


@pytest.fixture
def make(make_behavior) -> Any:
    def make(kind: str, **network: Any) -> Behavior:
        on_policy = kind in {"ppo", "poca", "mappo", "happo", "coma"}
        sizes = {} if kind == "random" else SIZES["ppo" if on_policy else "sac"] | GROUP_SIZE.get(kind, {})
        return make_behavior(
            sizes=(3,),
            continuous=2 if kind in CONTINUOUS else 0,
            branches=() if kind in CONTINUOUS else (3,),
            trainer_type=kind,
            hyperparameters=sizes,
            network_settings={"hidden_units": 8, "num_layers": 1, **network},
            max_steps=10_000,
            time_horizon=EPISODE,
        )

    return make


def ticks(behavior: Behavior, *, reward: float = 0.0, observed: float = 0.0) -> Iterator[StepBatch]:
    rng = np.random.default_rng(1)
    for tick in range(TICKS):
        ended = AGENTS if tick % EPISODE == EPISODE - 1 else 0
        ids = np.concatenate([np.arange(ended), np.arange(AGENTS)])
        rewards, seen = rng.normal(size=len(ids)), rng.normal(size=(len(ids), 3))
        if tick in POISONED:
            rewards[1] += reward
            seen[1, 1] += observed
        rows = np.arange(len(ids))
        yield StepBatch(
            agent_ids=ids,
            observations=(seen.astype(np.float32),),
            rewards=rewards.astype(np.float32),
            terminated=rows < ended,
            truncated=np.zeros(len(ids), np.bool_),
            allowed_actions=np.ones((len(ids), behavior.spec.action_spec.mask_size), np.bool_),
            group_ids=np.ones(len(ids), np.int64),
            group_rewards=np.zeros(len(ids), np.float32),
        )


def live(behavior: Behavior, **poison: float) -> None:
    """Raises UserError where an update makes anything NaN or infinite."""
    updates = 0
    for batch in ticks(behavior, **poison):
        observe(behavior, BehaviorTick(0, 0, batch))
        if behavior.ready_to_update():
            behavior.update()
            updates += 1
        behavior.collector.act()
    assert updates > 1 or behavior.settings.trainer_type == "random"


def numbers(state: Any) -> Iterator[NDArray[Any]]:
    if isinstance(state, torch.Tensor):
        yield state.numpy()
    elif isinstance(state, dict):
        for each in state.values():
            yield from numbers(each)
    elif isinstance(state, list | tuple):
        for each in state:
            yield from numbers(each)


@pytest.mark.parametrize("kind", sorted(ALGORITHMS))
def test_five_numbers_leave_everything_finite(make, kind: str) -> None:
    behavior = make(kind, normalize=True)
    live(behavior, reward=LARGEST_REWARD, observed=LARGEST_OBSERVED)
    assert all(np.isfinite(values).all() for values in numbers(checkpoint_of(behavior).algorithm))


def test_a_statistic_that_overflows_does_not_end_the_run(make) -> None:
    live(make("mappo", normalize=False), observed=LARGEST_OBSERVED)
