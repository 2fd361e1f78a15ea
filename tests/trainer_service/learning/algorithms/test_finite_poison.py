"""A few numbers out of all proportion, as large as may still come in, leave a learner that can go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import begin_world, run_ticks, state
from every_trainer import actions_of, make_behavior, settings_for
from short_episodes import DECISIONS, ShortEpisodes

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS
from unity_bridge.codec.unusable_values import LARGEST_OBSERVED, LARGEST_REWARD
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import StepBatch

POISONED = (3, 11, 12, 20, 28)
"""Ticks in which one agent's reward or observation is poison."""


class Poisoned(ShortEpisodes):
    """Short episodes with a few numbers out of all proportion."""

    def __init__(self, actions: ActionSpec, *, reward: float = 0.0, observed: float = 0.0) -> None:
        super().__init__(actions)
        self.reward, self.observed, self.ticks = reward, observed, 0

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        self.ticks += 1
        if self.ticks in POISONED:
            rewards = rewards.copy()
            rewards[1] += self.reward
            self.seen[1, 1] += self.observed
        return super().rows(rewards, **ends)


def lived(settings: TrainerSettings, **poison: float) -> dict[str, Any]:
    """All that was learned beside poison. Raises UserError where an update makes anything NaN or infinite."""
    actions = actions_of(settings)
    behavior = make_behavior(settings, actions, seed=1)
    run_ticks(behavior, *begin_world(behavior, Poisoned(actions, **poison)), 12 * DECISIONS)
    assert behavior.updates > 1 or not settings.hyperparameters.learns
    return state(behavior)


@pytest.mark.parametrize("kind", sorted(ALGORITHMS))
def test_five_numbers_leave_everything_finite(kind: str) -> None:
    found = lived(settings_for(kind, None, False), reward=LARGEST_REWARD, observed=LARGEST_OBSERVED)
    numbers = [value for value in found.values() if isinstance(value, torch.Tensor)]
    assert numbers
    assert all(value.isfinite().all() for value in numbers)


def test_a_statistic_that_overflows_does_not_end_the_run() -> None:
    settings = settings_for("mappo", None, False)
    plain = settings.network_settings.model_copy(update={"normalize": False})
    lived(settings.model_copy(update={"network_settings": plain}), observed=LARGEST_OBSERVED)
