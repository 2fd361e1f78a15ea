"""Search spaces: the grammar of their files, the values that are drawn, the check against a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer_service.commands.search.space import Parameter, read_space, require_valid, with_values
from trainer_service.errors import ConfigError

RATE = "behaviors.Basic.hyperparameters.learning_rate"
BATCH = "behaviors.Basic.hyperparameters.batch_size"
TYPE = "behaviors.Basic.trainer_type"
TAU = "behaviors.Basic.hyperparameters.tau"
CONFIGURATION = {"behaviors": {"Basic": {"trainer_type": "ppo", "max_steps": 2000}}}


def mistakes_in(parameters: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        read_space(parameters)
    return str(caught.value)


def test_file_with_every_kind_of_parameter(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(
        f"{RATE}: {{low: 1e-5, high: 1e-2, log: true}}\n"
        f"{BATCH}: {{low: 32, high: 128, step: 32, int: true}}\n"
        f"{TAU}: {{low: 0.001, high: 0.1, when: {{{TYPE}: sac}}}}\n"
        f"{TYPE}: {{choices: [ppo, sac]}}\n"
        "behaviors.Basic.max_steps: {fixed: 1000}\n"
    )
    space = read_space(file)
    draws = list(space.corners())
    assert {draw[RATE] for draw in draws} == {1e-5, 1e-2}
    assert {draw[BATCH] for draw in draws} == {32, 128}
    assert {draw[TYPE] for draw in draws} == {"ppo", "sac"}
    assert all((TAU in draw) == (draw[TYPE] == "sac") for draw in draws)
    assert {draw["behaviors.Basic.max_steps"] for draw in draws} == {1000}


@pytest.mark.parametrize(
    ("settings", "value", "nearest"),
    [
        ({"low": 0.1, "high": 0.5}, 0.7, 0.5),
        ({"low": 0.1, "high": 0.5, "step": 0.1}, 0.32, 0.3),
        ({"low": 3, "high": 10, "step": 4, "int": True}, 10, 7),
        ({"low": 3, "high": 10, "int": True}, 4.6, 5),
        ({"low": "1e-5", "high": "1e-3", "log": True}, 1e-7, 1e-5),
    ],
)
def test_number_is_the_nearest_of_the_range(settings: dict[str, Any], value: float, nearest: float) -> None:
    number = Parameter.model_validate(settings).number(value)
    assert number == nearest
    assert type(number) is (int if settings.get("int") else float)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 1, "hihg": 2}, "space: a.b.hihg: unknown key (did you mean 'high'?)"),
        ({"low": 1}, "space: a.b: expected low and high, or choices, or fixed"),
        ({"low": 1, "high": 2, "fixed": 1}, "space: a.b: expected low and high, or choices, or fixed"),
        ({"low": 2, "high": 1}, "space: a.b.low: expected less than the high of 1, got 2"),
        (
            {"low": 0, "high": 1, "log": True},
            "space: a.b.low: expected more than 0 on a logarithmic scale, got 0",
        ),
        (
            {"low": 1, "high": 9, "log": True, "step": 2},
            "space: a.b.step: expected none on a logarithmic scale",
        ),
        ({"low": 1.5, "high": 3, "int": True}, "space: a.b.low: expected a whole number, got 1.5"),
        ({"low": "much", "high": 3}, "space: a.b.low: expected a number, got 'much'"),
        ({"choices": []}, "space: a.b.choices: expected a list of values, got a list"),
        ({"choices": [1, 2, 1]}, "space: a.b.choices: 1 stands there twice"),
        ({"choices": [1, 2], "log": True}, "space: a.b.log: only a range from low to high has it"),
        (
            [1, 2],
            "space: a.b: expected a mapping such as {low: 1e-5, high: 1e-3, log: true} or {choices: [64, 128]}, "
            "got a list",
        ),
        (
            {"fixed": 1, "when": {"a.c": 1}},
            "space: a.b.when.a.c: not a parameter of the space (did you mean 'a.b'?)",
        ),
    ],
)
def test_mistake_is_named_by_its_key(settings: Any, message: str) -> None:
    assert mistakes_in({"a.b": settings}) == message


def test_condition_needs_one_of_the_choices() -> None:
    message = mistakes_in({"a": {"choices": ["x", "y"]}, "b": {"fixed": 1, "when": {"a": ["x", "z"]}}})
    assert message == "space: b.when.a: expected one of its choices, x, y, got 'z'"


def test_conditions_in_a_circle_are_refused() -> None:
    message = mistakes_in({"a": {"fixed": 1, "when": {"b": 1}}, "b": {"fixed": 1, "when": {"a": 1}}})
    assert "conditions lead in a circle" in message


@pytest.mark.parametrize("path", ["env_settings.seed", "checkpoint_settings.run_id"])
def test_settings_of_single_runs_are_refused(path: str) -> None:
    assert "is set for each run: search another setting" in mistakes_in({path: {"fixed": 1}})


def test_values_lie_over_the_configuration() -> None:
    values = {RATE: 0.01, "behaviors.Basic.max_steps": 5}
    assert with_values(CONFIGURATION, values) == {
        "behaviors": {
            "Basic": {"trainer_type": "ppo", "max_steps": 5, "hyperparameters": {"learning_rate": 0.01}}
        }
    }
    assert CONFIGURATION["behaviors"]["Basic"]["max_steps"] == 2000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"behaviors.Basic.hyperparameters.learning_ratee": {"low": 1e-5, "high": 1e-3}},
            "space.yaml: behaviors.Basic.hyperparameters.learning_ratee: unknown key (did you mean 'learning_rate'?)",
        ),
        (
            {BATCH: {"choices": [64, "many"]}},
            f"space.yaml: {BATCH}: expected a whole number, got 'many'",
        ),
        (
            {BATCH: {"low": 0.5, "high": 64}},
            f"space.yaml: {BATCH}: expected a whole number, got 0.5; say int: true",
        ),
        (
            {BATCH: {"low": 16, "high": 64}},
            f"space.yaml: {BATCH}: expected a whole number, got 31.2788745368; say int: true",
        ),
        (
            {"behaviors.Basci.max_steps": {"choices": [1, 2]}},
            "space.yaml: behaviors.Basci.max_steps: the configuration has no behavior 'Basci' "
            "(did you mean 'Basic'?)",
        ),
    ],
)
def test_setting_that_the_configuration_refuses(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_valid(read_space(parameters), CONFIGURATION, "space.yaml")
    assert str(caught.value) == message


def test_parameter_whose_condition_fails_is_not_tried() -> None:
    space = read_space({TYPE: {"fixed": "ppo"}, TAU: {"fixed": 0.01, "when": {TYPE: "ppo"}}})
    with pytest.raises(ConfigError, match="tau: unknown key"):
        require_valid(space, CONFIGURATION, "space.yaml")
    space = read_space({TYPE: {"choices": ["ppo", "sac"]}, TAU: {"fixed": 0.01, "when": {TYPE: "sac"}}})
    require_valid(space, CONFIGURATION, "space.yaml")


def test_corners_hold_every_pair_of_extremes() -> None:
    number, choice = {"low": 0, "high": 1}, {"choices": ["x", "y"]}
    corners = list(read_space({"a": number, "b": choice, "c": {**number, "int": True}}).corners())
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        assert len({(corner[one], corner[other]) for corner in corners}) == 4
