"""What a program may hand over as a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer_service.commands.common.configuration import read_configuration
from trainer_service.config import RunOptions
from trainer_service.errors import ConfigError, UserError

SEED = {"env_settings": {"seed": 7}}


def test_settings_of_one_behavior_are_every_behaviors() -> None:
    options = read_configuration({"trainer_type": "sac", "max_steps": 9}, SEED).options
    assert options.behavior_settings("Any").trainer_type == "sac"
    assert options.behavior_settings("Any").max_steps == 9
    assert options.env_settings.seed == 7


@pytest.mark.parametrize("kind", ["dictionary", "file", "options"])
def test_keywords_lie_over_any_kind_of_configuration(kind: str, tmp_path: Path) -> None:
    whole = {"behaviors": {"A": {"trainer_type": "ppo"}}, "env_settings": {"seed": 1, "num_areas": 2}}
    configuration: Any = whole
    if kind == "file":
        configuration = tmp_path / "a.yaml"
        configuration.write_text("behaviors: {A: {trainer_type: ppo}}\nenv_settings: {seed: 1, num_areas: 2}")
    elif kind == "options":
        configuration = RunOptions.model_validate(whole)
    options = read_configuration(configuration, SEED).options
    assert list(options.behaviors) == ["A"]
    assert (options.env_settings.seed, options.env_settings.num_areas) == (7, 2)


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"default_settings\.max_step: .*max_steps"):
        read_configuration({"trainer_type": "ppo", "max_step": 9}, {})
    wrong: Any = 42
    with pytest.raises(UserError, match=r"config: expected the path .* got 42"):
        read_configuration(wrong, {})
