"""Settings as arguments of ``train`` and flags of ``learn``: both come from the configuration's models."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import trainer_service
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.config import RunOptions
from trainer_service.config.section import section_in


def test_settings_are_nested_as_in_a_file() -> None:
    given = {
        "num_envs": 2,
        "seed": None,
        "run_id": "a",
        "results_dir": Path("there"),
        "debug": False,
        "host": "x",
    }
    assert nested(given, SETTINGS) == {
        "env_settings": {"num_envs": 2},
        "checkpoint_settings": {"run_id": "a", "results_dir": "there"},
        "debug": False,
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_a_key_of_the_configuration(name: str) -> None:
    *above, key = SETTINGS[name].path.split(".")
    section: type = RunOptions
    for part in above:
        inner = section_in(section.model_fields[part].annotation)  # type: ignore[attr-defined]
        assert inner is not None
        section = inner
    assert key == name
    assert key in section.model_fields  # type: ignore[attr-defined]


def test_notebooks_see_the_names_of_all_settings() -> None:
    known = inspect.signature(trainer_service.train).parameters
    assert set(SETTINGS) - {"env_path", "env_args"} <= set(known)
    assert known["num_envs"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "settings" not in known


def test_an_argument_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        TypeError, match=r"train\(\) got an unexpected keyword argument 'num_env'.*'num_envs'"
    ):
        trainer_service.train(None, num_env=2)  # type: ignore[call-arg]


def test_the_simulator_is_named_by_env_alone() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'env_path'"):
        trainer_service.train(None, env_path="sim:basic")  # type: ignore[call-arg]
