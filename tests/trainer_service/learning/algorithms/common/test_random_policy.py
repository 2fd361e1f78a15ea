"""The random policy: uniform, within what is allowed, and resumed where it stopped."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute, RandomPolicy
from trainer_service.learning.algorithms.common.actor import ActRequest
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("seen", (2,)),), ActionSpec(1, (3,)))
ROWS = 6000
SEEN = [np.zeros((ROWS, 2), np.float32)]
ALLOWED = np.broadcast_to(np.array([True, False, True]), (ROWS, 3)).copy()
NOTHING = np.empty((ROWS, 0), np.float32)


def chance(seed: int = 1) -> RandomPolicy:
    settings = TrainerSettings.model_validate({"trainer_type": "random"})
    return RandomPolicy(SPEC, settings, Compute(torch.device("cpu"), seed))


@pytest.mark.parametrize("deterministic", [False, True])
def test_it_draws_uniformly_deterministic_or_not(deterministic: bool) -> None:
    policy = chance()
    decisions = policy.actor.act(ActRequest(SEEN, ALLOWED, NOTHING, deterministic))
    # Deviations are 39 around 3000, and 0.0075 around 0.
    assert np.bincount(decisions.discrete_actions[:, 0], minlength=3).tolist() == pytest.approx(
        [3000, 0, 3000], abs=250
    )
    numbers = policy.actor.env_actions(decisions)
    assert np.abs(numbers).max() <= 1.0
    assert numbers.mean() == pytest.approx(0.0, abs=0.05)
    assert numbers.std() == pytest.approx(3**-0.5, abs=0.02)
    again = policy.actor.act(ActRequest(SEEN, ALLOWED, NOTHING, deterministic))
    assert (again.continuous_actions != decisions.continuous_actions).all()
