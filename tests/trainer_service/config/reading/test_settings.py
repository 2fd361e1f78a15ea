"""Single settings of a command line."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_service.commands.common.settings import put
from trainer_service.config import parse_run_options
from trainer_service.config.reading.settings import read_setting
from trainer_service.errors import ConfigError

FILE = {"behaviors": {"Walker": {"hyperparameters": {"batch_size": 64, "buffer_size": 640}}}}


def options(*texts: str, values: Any = FILE) -> Any:
    overrides: dict[str, Any] = {}
    for text in texts:
        put(overrides, *read_setting(text))
    return parse_run_options(values, overrides).options


def test_a_setting_wins_over_the_file_and_leaves_what_is_beside_it() -> None:
    tuning = options("behaviors.Walker.hyperparameters.batch_size=128").behaviors["Walker"].hyperparameters
    assert (tuning.batch_size, tuning.buffer_size) == (128, 640)


def test_values_are_read_as_in_a_file() -> None:
    walker = options(
        "behaviors.Walker.max_steps=1e6",
        "behaviors.Walker.network_settings={hidden_units: 8, memory: {memory_size: 16}}",
        "env_settings.env_args=[--level, '3']",
        "stop.target_return=5",
    )
    assert walker.behaviors["Walker"].max_steps == 1_000_000
    assert walker.behaviors["Walker"].network_settings.memory.memory_size == 16
    assert walker.env_settings.env_args == ("--level", "3")


def test_a_name_with_dots_stands_in_quotes() -> None:
    assert read_setting('behaviors."Walker.v1.5".max_steps=7') == (
        ["behaviors", "Walker.v1.5", "max_steps"],
        7,
    )


def test_what_comes_later_wins() -> None:
    assert options("env_settings.num_areas=2", "env_settings.num_areas=3").env_settings.num_areas == 3


@pytest.mark.parametrize("text", ["max_steps", "=5", "a..b=1", ".a=1", "a.=1", "a[0].b=1", "", '"a=1'])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--set: expected KEY\.KEY=VALUE"):
        read_setting(text)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[", "not valid YAML: "),
        ("[" * 3000, "more than 10000 values or 50 levels"),
        ("!!int x", "'x' is not of type int"),
        ("{a: 1, a: 2}", "a: duplicate key, already given on line 1"),
        ("{1: 2}", "a key must be a text, got 1; put it in quotes"),
    ],
)
def test_a_value_that_is_no_yaml_is_refused_as_in_a_file(value: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_setting(f"a.b={value}")
    assert str(refused.value).startswith("--set a.b:")
    assert said in str(refused.value)


def test_an_empty_value_is_null() -> None:
    assert read_setting("a.b=") == (["a", "b"], None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("behaviors.Walker.max_stepz=5", "command line: behaviors.Walker.max_stepz: unknown key"),
        ("env_settings.num_envs=many", "command line: env_settings.num_envs: expected a whole number"),
        (
            "behaviors.Walker.max_steps={a: 1}",
            "command line: behaviors.Walker.max_steps: expected a whole number, got a mapping",
        ),
        ("behaviors.Walkr.max_steps=5", "the file does not list (did you mean 'Walker'?)"),
    ],
)
def test_mistakes_are_told_as_those_of_a_file(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(text)
    assert expected in str(refused.value)


def test_any_behavior_may_be_named_where_any_may_show_up() -> None:
    loaded = options("behaviors.Walker.max_steps=5", values={"default_settings": {"max_steps": 9}})
    assert loaded.behaviors["Walker"].max_steps == 5
