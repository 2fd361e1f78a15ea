"""``trainer_service.sweep``: the configurations and environments that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import trainer_service
from trainer_service.errors import ConfigError

pytest.importorskip("optuna")

RATE = "hyperparameters.learning_rate"
SHORT = {"trainer_type": "ppo", "max_steps": 300, "summary_freq": 100}


def sampled(config: Any, path: str, **settings: Any) -> list[Any]:
    """The values of a parameter in the first trials."""
    space = {path: {"low": 1e-4, "high": 1e-2, "log": True}}
    result = trainer_service.sweep(config, space, dry_run=True, trials=2, seed=4, **settings)
    return [trial.values[path] for trial in result.trials]


def test_every_form_of_configuration_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "walker.yaml"
    file.write_text(yaml.safe_dump({"behaviors": {"Walker": SHORT}}))
    of_all, of_one = f"default_settings.{RATE}", f"behaviors.Walker.{RATE}"
    options = trainer_service.load_run_options(file).options
    found = [
        sampled(None, of_all),
        sampled(SHORT, of_all),
        sampled({"default_settings": SHORT}, of_all),
        sampled(file, of_one),
        sampled(str(file), of_one),
        sampled(options, of_one),
        sampled("basic", f"behaviors.Basic.{RATE}"),
    ]
    assert len(found[0]) == 2
    assert all(values == found[0] for values in found)


def test_space_is_a_file_or_a_mapping(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"default_settings.{RATE}: {{choices: [0.5]}}\n")
    for space in (file, str(file)):
        result = trainer_service.sweep(SHORT, space, dry_run=True, trials=1)
        assert result.trials[0].values == {f"default_settings.{RATE}": 0.5}
    file.write_text(f"default_settings.{RATE}: {{choices: [much]}}\n")
    with pytest.raises(ConfigError, match=rf"^{file}: default_settings.{RATE}: expected a number"):
        trainer_service.sweep(SHORT, file, dry_run=True)


def test_every_mistake_in_the_arguments_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        trainer_service.sweep(SHORT, {RATE: {"fixed": 1}}, jobs=0, pruner="medain", direction="up")
    assert str(caught.value).splitlines() == [
        "jobs: expected at least 1, got 0",
        "direction: expected 'maximize' or 'minimize', got 'up'",
        "pruner: expected 'median', 'hyperband' or 'none', got 'medain' (did you mean 'median'?)",
    ]
