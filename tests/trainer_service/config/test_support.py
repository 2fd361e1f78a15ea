from __future__ import annotations

from collections.abc import Callable

import pytest

from trainer_service.config import (
    LoadedOptions,
    TrainerSettings,
    unsupported_features,
    unsupported_in_behavior,
)

Load = Callable[..., LoadedOptions]


@pytest.mark.parametrize(
    ("behavior", "key"),
    [
        ("{trainer_type: poca}", "trainer_type: 'poca' is"),
        (
            "{trainer_type: sac, network_settings: {memory: {}}}",
            "network_settings.memory: recurrent policies of 'sac' are",
        ),
        ("{reward_signals: {gail: {demo_path: a.demo}}}", "reward_signals.gail: this reward signal is"),
        ("{behavioral_cloning: {demo_path: a.demo}}", "behavioral_cloning: behavioral cloning is"),
        ("{self_play: {}}", "self_play: self-play is"),
    ],
)
def test_what_cannot_run_yet_is_named_by_its_key(load: Load, behavior: str, key: str) -> None:
    options = load(f"behaviors: {{A: {behavior}}}").options
    assert unsupported_features(options) == [f"behaviors.A.{key} not supported yet"]


def test_default_settings_count_where_no_behavior_is_listed(load: Load) -> None:
    text = "default_settings: {trainer_type: poca}\n"
    assert unsupported_features(load(text).options) == [
        "default_settings.trainer_type: 'poca' is not supported yet"
    ]
    assert unsupported_features(load(text + "behaviors: {A: {trainer_type: ppo}}").options) == []


@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_what_learns_plainly_is_supported(trainer_type: str) -> None:
    settings = TrainerSettings.model_validate({"trainer_type": trainer_type})
    assert unsupported_in_behavior("behaviors.A", settings) == []
