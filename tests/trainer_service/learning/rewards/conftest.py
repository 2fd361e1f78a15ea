"""Trajectories of chance for behaviors of any kind, and the reward sources that look at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from made_trajectories import trajectories_of

from trainer_service.config.rewards import REWARD_SIGNALS
from trainer_service.learning.rewards import REWARD_SOURCES, RewardSource
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge import specs
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType
from unity_bridge.steps import Observation

VECTOR = ObservationSpec("vector", (3,))
PICTURE = ObservationSpec("picture", (3, 20, 20), specs.PICTURE)
ENTITIES = ObservationSpec("entities", (4, 5), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE))
GOAL = ObservationSpec("goal", (2,), observation_type=ObservationType.GOAL_SIGNAL)

NUMBERS, CHOICES, BOTH = ActionSpec(2, ()), ActionSpec(0, (3, 2)), ActionSpec(1, (2,))


@pytest.fixture
def make_trajectories() -> Callable[..., Trajectories]:
    """Trajectories of these lengths, everything in them drawn at random."""

    def make(
        spec: BehaviorSpec, lengths: Sequence[int], *, seed: int = 1, terminated: Sequence[bool] | None = None
    ) -> Trajectories:
        rng = np.random.default_rng(seed)
        steps, segments, actions = sum(lengths), len(lengths), spec.action_spec

        def observed(rows: int) -> tuple[Observation, ...]:
            return tuple(
                rng.integers(0, 256, (rows, *sensor.shape)).astype(np.uint8)
                if sensor.is_picture
                else rng.normal(size=(rows, *sensor.shape)).astype(np.float32)
                for sensor in spec.observation_specs
            )

        choices = [rng.integers(0, size, steps) for size in actions.discrete_branches]
        return trajectories_of(
            observed(steps),
            lengths,
            continuous_actions=rng.normal(size=(steps, actions.continuous_size)).astype(np.float32),
            discrete_actions=np.stack(choices, axis=1) if choices else np.empty((steps, 0), np.int64),
            allowed_actions=np.ones((steps, actions.mask_size), np.bool_),
            final_observations=observed(segments),
            final_allowed_actions=np.ones((segments, actions.mask_size), np.bool_),
            terminated=np.zeros(segments, np.bool_) if terminated is None else np.array(terminated),
        )

    return make


@pytest.fixture
def make_source() -> Callable[..., RewardSource]:
    """A reward source of that name with a small network; keywords are its settings."""

    def make(name: str, spec: BehaviorSpec, *, seed: int = 1, **settings: Any) -> RewardSource:
        network = {"hidden_units": 16, "num_layers": 1, **settings.pop("network_settings", {})}
        chosen = REWARD_SIGNALS[name].model_validate({"network_settings": network, **settings})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return REWARD_SOURCES[name](spec, chosen, torch.device("cpu"))

    return make
