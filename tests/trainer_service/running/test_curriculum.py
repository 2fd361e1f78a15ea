"""Lessons: their ends, histories and messages. Every number can be checked on paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_service.config import parse_run_options
from trainer_service.running.curriculum import (
    CurrentLesson,
    Curriculum,
    LessonChange,
    LessonHistory,
    Parameters,
    Progress,
    lesson_mismatches,
)
from unity_bridge.side_channels import (
    FloatParameter,
    GaussianSampler,
    MultiRangeUniformSampler,
    UniformSampler,
)


def parameters(**given: Any) -> Parameters:
    options = parse_run_options({"behaviors": {"A": {}, "B": {}}, "environment_parameters": given}).options
    assert options.environment_parameters is not None
    return options.environment_parameters


def lessons(*criteria: Mapping[str, Any]) -> dict[str, Any]:
    """A curriculum whose lessons 0, 1 … end by these criteria; one more comes last."""
    begun = [
        {"name": f"L{number}", "value": number, "completion_criteria": {"behavior": "A", **each}}
        for number, each in enumerate(criteria)
    ]
    return {"curriculum": [*begun, {"name": "last", "value": 99}]}


def curriculum(**given: Any) -> Curriculum:
    return Curriculum(parameters(**given))


def earned(*returns: float, fraction: float = 0.0) -> dict[str, Progress]:
    """Progress of behavior A."""
    return {"A": Progress(fraction, returns)}


def changed(course: Curriculum, *returns: float, fraction: float = 0.0) -> bool:
    return bool(course.advance(earned(*returns, fraction=fraction)))


PLAIN = {"signal_smoothing": False}


def test_progress_must_exceed_its_threshold() -> None:
    course = curriculum(p=lessons({"measure": "progress", "threshold": 0.5}))
    assert not changed(course, fraction=0.5)
    assert changed(course, fraction=0.51)
    assert course.lessons == {"p": CurrentLesson(1, "last")}


def test_the_mean_of_the_last_returns_must_exceed_the_threshold() -> None:
    # Three episodes are asked for and so three are looked at: 1 5 3 has mean 3, 5 3 4 has mean 4.
    course = curriculum(p=lessons({"threshold": 3.5, "min_lesson_length": 3, **PLAIN}))
    assert not changed(course, 1.0, 5.0)
    assert not changed(course, 3.0)
    assert changed(course, 4.0)


def test_smoothing_takes_three_quarters_of_each_new_mean() -> None:
    # s₁ = 0, s₂ = ¼·0 + ¾·8 = 6, s₃ = ¼·6 + ¾·8 = 7.5; one return is remembered.
    course = curriculum(p=lessons({"threshold": 7.0}))
    for each, level in ((0.0, 0.0), (8.0, 6.0)):
        assert not changed(course, each)
        assert course.history_of("A").mean_returns == {"p": level}
    assert changed(course, 8.0)


def test_smoothing_begins_with_the_first_mean_not_at_zero() -> None:
    # From zero, −4 would count as −3 at first and end a lesson that asks for more than −3.5.
    assert not changed(curriculum(p=lessons({"threshold": -3.5})), -4.0)
    assert changed(curriculum(p=lessons({"threshold": 3.5})), 4.0)


def test_the_longest_lesson_sets_how_many_returns_count() -> None:
    course = curriculum(
        p=lessons({"threshold": 2.9, **PLAIN}), q=lessons({"threshold": 100.0, "min_lesson_length": 4})
    )
    # p asks for no number of episodes, yet the mean is over the four that q needs: (3 + 3 + 3 + 0) / 4 < 2.9.
    assert not changed(course, 0.0, 3.0, 3.0, 3.0)
    assert course.history_of("A").recent_returns == (3.0, 3.0, 3.0, 0.0)
    assert changed(course, 3.0)


def test_each_parameter_moves_on_by_one_lesson_at_a_time() -> None:
    steps = [{"measure": "progress", "threshold": threshold} for threshold in (0.1, 0.2, 0.3)]
    course = curriculum(p=lessons(*steps), q=lessons(*steps[:1]))
    assert [change.parameter for change in course.advance(earned(fraction=0.9))] == ["p", "q"]
    assert course.numbers == {"p": 1, "q": 1}
    course.advance(earned(fraction=0.9))
    assert course.numbers == {"p": 2, "q": 1}


def test_whatever_parameter_moves_on_all_returns_are_forgotten() -> None:
    course = curriculum(
        p=lessons({"measure": "progress", "threshold": 0.5}),
        q=lessons({"behavior": "B", "threshold": 5.0, "min_lesson_length": 2}),
    )
    course.advance({"A": Progress(0.0, ()), "B": Progress(0.0, (9.0,))})
    course.advance({"A": Progress(0.6, ()), "B": Progress(0.0, ())})
    assert course.numbers == {"p": 1, "q": 0}
    assert course.history_of("B") == LessonHistory()
    course.advance({"A": Progress(0.6, ()), "B": Progress(0.0, (9.0,))})
    assert course.numbers == {"p": 1, "q": 0}
    course.advance({"A": Progress(0.6, ()), "B": Progress(0.0, (9.0,))})
    assert course.numbers == {"p": 1, "q": 1}


def test_returns_of_one_lesson_do_not_count_in_the_next() -> None:
    course = curriculum(p=lessons({"threshold": 5.0}, {"threshold": 3.0}))
    assert changed(course, 8.0)
    assert not changed(course, 2.0)  # ¼·8 + ¾·2 = 3.5 would be enough
    assert course.history_of("A").mean_returns == {"p": 2.0}


def test_a_lesson_decides_whether_its_end_resets_simulators() -> None:
    course = curriculum(
        p=lessons({"measure": "progress", "require_reset": True}), q=lessons({"measure": "progress"})
    )
    assert course.advance(earned(fraction=0.1)) == [LessonChange("p", True), LessonChange("q", False)]


def test_a_resumed_curriculum_equals_an_uninterrupted_one() -> None:
    given = {
        "p": lessons({"measure": "progress", "threshold": 0.1}, {"threshold": 6.0, "min_lesson_length": 2}),
        "q": lessons({"behavior": "B", "threshold": 50.0}),
    }
    straight, parted = curriculum(**given), curriculum(**given)
    for course in (straight, parted):
        course.advance(earned(fraction=0.2))
        course.advance({"A": Progress(0.2, (4.0, 6.0)), "B": Progress(0.0, (7.0,))})
    again = curriculum(**given)
    again.resume(parted.numbers, {name: parted.history_of(name) for name in ("A", "B")})
    for course in (straight, again):
        assert course.history_of("A") == LessonHistory((6.0, 4.0), {"p": 5.0})
        assert course.history_of("B") == LessonHistory((7.0,), {"q": 7.0})
        # mean(8, 6) = 7, and ¼·5 + ¾·7 = 6.5 > 6
        assert course.advance(earned(8.0, fraction=0.2)) == [LessonChange("p", False)]
        assert course.numbers == {"p": 2, "q": 0}


def test_a_shortened_curriculum_resumes_in_its_last_lesson() -> None:
    course = curriculum(p=lessons({}))
    course.resume({"p": 5, "gone": 2}, {"A": LessonHistory((1.0, 2.0, 3.0), {"p": 1.0, "gone": 9.0})})
    assert course.lessons == {"p": CurrentLesson(1, "last")}
    assert course.history_of("A") == LessonHistory((1.0,), {})


def test_mismatches_with_a_changed_configuration_are_described() -> None:
    short, gone, new = lesson_mismatches(parameters(p=lessons({}), n=1), {"p": 5, "gone": 2})
    assert "lesson number 5 of environment parameter 'p', which now has only 2" in short
    assert "continues in the last one, 'last'" in short
    assert "'gone', which the configuration no longer names" in gone
    assert "'n' are new in this run: they begin in lesson 0" in new
    assert lesson_mismatches(parameters(p=lessons({}), n=1), {"p": 1, "n": 0}) == []
    assert lesson_mismatches(parameters(p=1), {}) == []


UNIFORM = {"sampler_type": "uniform", "sampler_parameters": {"min_value": 1, "max_value": 2}}
SAMPLERS = {
    "number": 3,
    "even": UNIFORM,
    "bell": {"sampler_type": "gaussian", "sampler_parameters": {"mean": 1, "st_dev": 0.5, "seed": 7}},
    "gaps": {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[0, 1], [3, 4]]}},
    "fixed": {"sampler_type": "constant", "sampler_parameters": {"value": 2.5}},
}


def test_every_form_of_a_parameter_becomes_a_message() -> None:
    course = Curriculum(parameters(**SAMPLERS), 100)
    assert course.messages() == [
        FloatParameter("number", 3.0),
        UniformSampler("even", 101, 1.0, 2.0),
        GaussianSampler("bell", 7, 1.0, 0.5),
        MultiRangeUniformSampler("gaps", 102, ((0.0, 1.0), (3.0, 4.0))),
        FloatParameter("fixed", 2.5),
    ]


def drawn_lessons(*values: Any) -> dict[str, Any]:
    made = lessons(*[{} for _ in values[1:]])
    for lesson, value in zip(made["curriculum"], values, strict=True):
        lesson["value"] = value
    return made


def test_seeds_count_unseeded_lessons_in_the_files_order() -> None:
    own = {**UNIFORM, "sampler_parameters": {"seed": 5}}
    given = parameters(a=1.0, b=drawn_lessons(UNIFORM, 2.0, own, UNIFORM), c=UNIFORM)
    course = Curriculum(given, 1000)
    # a and the number in b count and draw nothing: 1000 a, 1001 and 1003 of b, 1004 c; its own seed counts not.
    seeds = []
    for number in range(4):
        course.resume({"b": number}, {})
        _, b, c = course.messages()
        seeds.append(b.seed if isinstance(b, UniformSampler) else None)
    assert seeds == [1001, None, 5, 1003]
    assert isinstance(c, UniformSampler)
    assert c.seed == 1004


def seeds(course: Curriculum, simulator: int) -> dict[str, int]:
    return {
        message.name: message.seed
        for message in course.messages(simulator)
        if not isinstance(message, FloatParameter)
    }


def test_samplers_have_a_seed_for_each_simulator() -> None:
    courses = [Curriculum(parameters(**SAMPLERS, other=UNIFORM), run) for run in (100, 101)]
    assert seeds(courses[0], 0) == {"even": 101, "bell": 7, "gaps": 102, "other": 104}
    found = [seeds(course, simulator) for course in courses for simulator in range(1, 50)]
    assert {each["bell"] for each in found} == {7}  # its own in the file
    derived = [each[name] for each in found for name in ("even", "gaps", "other")]
    assert len({*derived, *range(100, 106)}) == len(derived) + 6
    assert all(0 <= seed < 2**31 for seed in derived)
    assert seeds(Curriculum(parameters(**SAMPLERS, other=UNIFORM), 100), 3) == seeds(courses[0], 3)
