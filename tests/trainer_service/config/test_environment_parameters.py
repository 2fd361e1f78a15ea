from __future__ import annotations

from collections.abc import Callable

import pytest

from trainer_service.config import LoadedOptions, Sampler

Load = Callable[..., LoadedOptions]
Refuse = Callable[..., list[str]]


def parameter(form: str) -> str:
    return f"behaviors: {{A: {{}}}}\nenvironment_parameters: {{p: {form}}}"


@pytest.mark.parametrize(("form", "value"), [("3", 3.0), ("1e1", 10.0), ("-0.5", -0.5), ("true", 1.0)])
def test_a_parameter_may_be_a_number(load: Load, form: str, value: float) -> None:
    assert load(parameter(form)).options.environment_parameters == {"p": value}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("uniform, sampler_parameters: {max_value: 2}", {"seed": -1, "min_value": 0.0, "max_value": 2.0}),
        ("gaussian, sampler_parameters: {seed: 3}", {"seed": 3, "mean": 1.0, "st_dev": 1.0}),
        ("constant, sampler_parameters: {}", {"seed": -1, "value": 0.0}),
        ("multirangeuniform, sampler_parameters: {}", {"seed": -1, "intervals": ((0.0, 1.0),)}),
        (
            "multirange_uniform, sampler_parameters: {intervals: [[0, 1], [2, 3]]}",
            {"seed": -1, "intervals": ((0.0, 1.0), (2.0, 3.0))},
        ),
    ],
)
def test_a_parameter_may_be_drawn(load: Load, form: str, expected: dict[str, object]) -> None:
    parameters = load(parameter(f"{{sampler_type: {form}}}")).options.environment_parameters
    assert parameters is not None
    assert isinstance(parameters["p"], Sampler)
    assert parameters["p"].sampler_parameters.model_dump() == expected


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("high", "p: expected a number, got 'high'"),
        ("[1]", "p: expected a number, a sampler or a curriculum, got a list"),
        ("null", "p: expected a number, a sampler or a curriculum, got nothing"),
        (
            "{curiculum: []}",
            "p: expected a number, a sampler (sampler_type, sampler_parameters) or a curriculum",
        ),
        ("{sampler_type: uniform}", "p.sampler_parameters: required, but not given"),
        ("{sampler_parameters: {}}", "p.sampler_type: required, but not given"),
        (
            "{sampler_type: unifrm, sampler_parameters: {}}",
            "p.sampler_type: expected a sampler type, one of uniform,",
        ),
        (
            "{sampler_type: uniform, sampler_parameters: {min: 1}}",
            "p.sampler_parameters.min: unknown key; expected one of seed, min_value, max_value",
        ),
        (
            "{sampler_type: uniform, sampler_parameters: {min_value: 3, max_value: 2}}",
            "p.sampler_parameters.min_value: expected at most the max_value of 2, got 3",
        ),
        (
            "{sampler_type: multirangeuniform, sampler_parameters: {intervals: [[2, 1]]}}",
            "p.sampler_parameters.intervals: expected [min, max] pairs with min at most max, got [2, 1]",
        ),
        (
            "{sampler_type: multirangeuniform, sampler_parameters: {intervals: [[1]]}}",
            "p.sampler_parameters.intervals: expected [min, max] pairs, got [1]",
        ),
        ("{curriculum: []}", "p.curriculum: expected at least one lesson, got an empty list"),
        ("{curriculum: [{name: a}]}", "p.curriculum[0].value: required, but not given"),
        (
            "{curriculum: [{name: a, value: 1}, {name: b, value: 2}]}",
            "p.curriculum[0]: lesson 'a' needs completion_criteria to end by",
        ),
        (
            "{curriculum: [{name: a, value: 1, completion_criteria: {behavior: A, measure: Elo}}, "
            "{name: b, value: 2}]}",
            "p.curriculum[0].completion_criteria.measure: expected 'reward' or 'progress', got 'Elo'",
        ),
        (
            "{curriculum: [{name: a, value: 1, completion_criteria: {behavior: A, measure: progress, threshold: 2}}, "
            "{name: b, value: 2}]}",
            "p.curriculum[0].completion_criteria.threshold: expected a share of max_steps between 0 and 1, got 2",
        ),
    ],
)
def test_a_mistake_in_a_parameter_is_named(refuse: Refuse, form: str, message: str) -> None:
    assert any(
        line.startswith(f"run.yaml:2: environment_parameters.{message}") for line in refuse(parameter(form))
    )


WATCHED = """
    environment_parameters:
      p:
        curriculum:
        - {{name: a, value: 1, completion_criteria: {{behavior: {behavior}}}}}
        - {{name: b, value: 2}}
"""


def test_a_lesson_may_not_wait_for_an_unknown_behavior(refuse: Refuse) -> None:
    (line,) = refuse("    behaviors: {BigWall: {}, SmallWall: {}}" + WATCHED.format(behavior="BigWal"))
    assert "environment_parameters.p.curriculum[0].completion_criteria.behavior: expected a behavior" in line
    assert "'BigWall', 'SmallWall', got 'BigWal' (is 'BigWall' meant?)" in line


def test_with_default_settings_any_behavior_may_show_up(load: Load) -> None:
    assert load("    default_settings: {trainer_type: ppo}" + WATCHED.format(behavior="B")).warnings == ()
