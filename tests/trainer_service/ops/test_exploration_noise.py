from __future__ import annotations

import math

import pytest
import torch

from trainer_service.ops.distributions import standard_normal
from trainer_service.ops.exploration_noise import OU_RATE, drifted, explored


def test_a_drift_keeps_its_share_and_adds_noise() -> None:
    # √(1 − 0.6²) = 0.8
    assert drifted(torch.tensor(2.0), torch.tensor(1.0), rate=0.4).item() == pytest.approx(0.6 * 2 + 0.8)
    assert drifted(torch.tensor(1.0), torch.tensor(0.0)).item() == pytest.approx(0.85)
    # √(1 − 0.7225) = √0.2775
    assert drifted(torch.tensor(0.0), torch.tensor(1.0)).item() == pytest.approx(0.526783, abs=1e-6)


def test_the_drift_reaches_a_deviation_of_one_and_is_correlated() -> None:
    noise = torch.Generator().manual_seed(1)
    state, states = torch.zeros(20_000), []
    for _ in range(40):
        before, state = state, drifted(state, standard_normal(state, noise))
        states.append(state)
    deviations = [float(each.std()) for each in states]
    assert deviations[0] == pytest.approx(math.sqrt(1 - (1 - OU_RATE) ** 2), abs=0.02)
    assert deviations[-1] == pytest.approx(1.0, abs=0.02)
    assert float((before * state).mean()) == pytest.approx(1 - OU_RATE, abs=0.03)


def test_actions_stay_between_minus_one_and_one() -> None:
    actions, noise = torch.tensor([0.5, -0.9, 0.9]), torch.tensor([-1.0, -1.0, 1.0])
    torch.testing.assert_close(explored(actions, noise, 0.2), torch.tensor([0.3, -1.0, 1.0]))
    assert torch.equal(explored(actions, noise, 0.0), actions)
