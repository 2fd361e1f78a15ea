"""Settings that come with weights may not describe more than the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.networks.size_limit import SizeLimit
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

MANY = 2**40


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(MANY),
        lambda: torch.zeros((2**20, 2**20)),
        lambda: torch.randn(2**20, 2**20),
        lambda: torch.zeros(1).new_zeros(MANY),
        lambda: torch.nn.Linear(2**20, 2**20),
        lambda: torch.nn.LSTM(8, 2**20),
    ],
)
def test_nothing_far_larger_than_the_weights_is_made(make: Any) -> None:
    with SizeLimit({"weights": torch.zeros(100)}), pytest.raises(ValueError, match="far larger than"):
        make()


def test_nor_a_million_small_things() -> None:
    with SizeLimit({}):
        for _ in range(2000):
            torch.empty(1)
        with pytest.raises(ValueError, match="far larger than"):
            torch.empty(1)


def test_what_is_there_may_be_made_anew() -> None:
    there = {"policy": {"weights": [torch.zeros(2**22)]}, "optimizer": (torch.zeros(2**22),)}
    with SizeLimit(there):
        assert torch.empty(2**24).numel() == 2**24
    assert torch.empty(2**25).numel() == 2**25


@pytest.mark.parametrize(
    "network",
    [{"hidden_units": 2**15}, {"num_layers": 1000}, {"memory": {"memory_size": 2**15, "sequence_length": 2}}],
)
def test_a_policy_is_refused_whose_settings_exceed_its_weights(
    make_behavior, network: dict[str, Any]
) -> None:
    checkpoint = checkpoint_of(make_behavior(name="Walker"))
    settings = {**checkpoint.settings.model_dump(mode="json"), "network_settings": network}
    theirs = TrainerSettings.model_validate(settings)
    with pytest.raises(UserError, match="'Walker': its weights do not fit its settings"):
        Policy(replace(checkpoint, settings=theirs))


def test_nor_of_sensors_and_actions_that_they_deny(make_behavior) -> None:
    checkpoint = checkpoint_of(make_behavior(name="Walker"))
    for spec in (
        BehaviorSpec((ObservationSpec("eyes", (10**9,)),), ActionSpec(2)),
        BehaviorSpec((ObservationSpec("eyes", (3,)),), ActionSpec(10**9)),
    ):
        with pytest.raises(UserError, match="'Walker': its weights do not fit its settings"):
            Policy(replace(checkpoint, spec=spec))
