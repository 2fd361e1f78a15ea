"""Settings of on-policy learners."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import OnPolicyHyperparameters

ADAPTIVE = {"learning_rate_schedule": "adaptive"}


def hyper(trainer_type: str = "ppo", **given: Any) -> OnPolicyHyperparameters:
    settings = TrainerSettings.model_validate({"trainer_type": trainer_type, "hyperparameters": given})
    assert isinstance(settings.hyperparameters, OnPolicyHyperparameters)
    return settings.hyperparameters


def test_the_divergence_that_a_rate_is_adapted_to() -> None:
    assert hyper().adapted_kl is None
    assert hyper(**ADAPTIVE).adapted_kl == 0.01
    assert hyper(**ADAPTIVE, desired_kl=0.02).adapted_kl == 0.02


def test_the_divergence_is_measured_where_a_setting_needs_it() -> None:
    assert [hyper(**given).measures_kl for given in ({}, ADAPTIVE, {"target_kl": 0.1})] == [False, True, True]


def test_other_schedules_are_constant_beside_an_adaptive_rate() -> None:
    assert (hyper(**ADAPTIVE).beta_schedule, hyper(**ADAPTIVE).epsilon_schedule) == ("constant", "constant")
    assert hyper(**ADAPTIVE, beta_schedule="linear").beta_schedule == "linear"


@pytest.mark.parametrize(
    ("trainer_type", "given", "words"),
    [
        (
            "ppo",
            {"desired_kl": 0.02},
            "expected null, because only 'learning_rate_schedule: adaptive' follows it",
        ),
        (
            "coma",
            {"desired_kl": 0.02},
            "expected null, because only 'learning_rate_schedule: adaptive' follows it",
        ),
        ("mappo", {**ADAPTIVE, "learning_rate": 0.1}, "expected 1e-05 to 0.01, the limits of"),
        ("happo", {"target_kl": 0.0}, "target_kl"),
        ("sac", ADAPTIVE, "'constant', 'linear' or 'exponential'"),
        ("sac", {"target_kl": 0.1}, "'target_kl' is a key of ppo, .*, not of sac"),
    ],
)
def test_settings_that_control_nothing_are_refused(
    trainer_type: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        hyper(trainer_type, **given)
