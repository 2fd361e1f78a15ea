from __future__ import annotations

from typing import Any

import pytest

from trainer_service.config import HYPERPARAMETERS, REWARD_SIGNALS, TrainerSettings, changed_networks
from trainer_service.config.values import SHAPES_WEIGHTS


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ({}, {"hyperparameters": {"learning_rate": 1.0}, "max_steps": 7, "time_horizon": 9}, []),
        ({}, {"network_settings": {"deterministic": True}}, []),
        (
            {},
            {"hyperparameters": {"shared_critic": True, "beta": 1.0}},
            ["hyperparameters.shared_critic was false, now true"],
        ),
        (
            {"network_settings": {"memory": {"memory_size": 8}}},
            {"network_settings": {"memory": {"memory_size": 16, "sequence_length": 3}}},
            ["network_settings.memory.memory_size was 8, now 16"],
        ),
        ({"network_settings": {"memory": {}}}, {}, ["network_settings.memory was set, now not set"]),
        (
            {"reward_signals": {"extrinsic": {}}},
            {"reward_signals": {"extrinsic": {"gamma": 0.5}, "curiosity": {}}},
            ["reward_signals.curiosity was not set, now set"],
        ),
        (
            {"reward_signals": {"extrinsic": {}, "rnd": {}}},
            {
                "reward_signals": {
                    "extrinsic": {"network_settings": {"keep_scale": False}},
                    "rnd": {"network_settings": {"keep_scale": False}},
                }
            },
            ["reward_signals.rnd.network_settings.keep_scale was true, now false"],
        ),
    ],
)
def test_changes_without_weights_are_not_reported(
    before: dict[str, Any], now: dict[str, Any], changed: list[str]
) -> None:
    assert changed_networks(*(TrainerSettings.model_validate(each) for each in (before, now))) == changed


def test_keys_that_shape_weights_are_marked_in_every_model() -> None:
    models = [*HYPERPARAMETERS.values(), *REWARD_SIGNALS.values()]
    marked = {
        (model, key)
        for model in models
        for key, field in model.model_fields.items()
        if SHAPES_WEIGHTS in field.metadata
    }
    keys = {key for _, key in marked}
    assert keys == {
        "shared_critic", "group_size", "share", "agent_ids", "state", "value_normalization", "dueling", "mixer_units",
        "hypernet_units", "critic_norm", "thought_units", "message_units", "use_actions", "use_vail",
        "optimizer",  # which has a state of another form
    }  # fmt: skip
    assert marked == {(model, key) for model in models for key in keys & model.model_fields.keys()}
