"""The ``environment_parameters`` that simulators get: constant, random or by lessons."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, SerializeAsAny, ValidationInfo, field_validator, model_validator

from trainer_service.config.section import Section, require_choice, section_error
from trainer_service.config.values import (
    Count,
    Flag,
    NonNegative,
    Number,
    Seed,
    Text,
    expected,
    number,
    problem,
)


class SamplerParameters(Section):
    """Parameters of any sampler."""

    seed: Seed = -1
    """−1 derives a seed for each simulator from the run's; any other seed is that of all simulators."""


class UniformParameters(SamplerParameters):
    """A uniform distribution between two numbers."""

    min_value: Number = 0.0
    """Smallest value."""

    max_value: Number = 1.0
    """Largest value."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min_value > self.max_value:
            raise section_error(
                ("min_value",),
                f"expected at most the max_value of {self.max_value:g}, got {self.min_value:g}",
            )
        return self


class GaussianParameters(SamplerParameters):
    """A normal distribution."""

    mean: Number = 1.0
    """Mean of the distribution."""

    st_dev: NonNegative = 1.0
    """Standard deviation of the distribution."""


class MultiRangeUniformParameters(SamplerParameters):
    """A uniform distribution over several intervals."""

    intervals: tuple[tuple[Number, Number], ...] = ((0.0, 1.0),)
    """Pairs of smallest and largest value."""

    @field_validator("intervals", mode="before")
    @classmethod
    def _are_pairs(cls, intervals: Any) -> Any:
        if not isinstance(intervals, list | tuple) or not intervals:
            raise expected("a list of [min, max] pairs", intervals)
        for pair in intervals:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise problem(f"expected [min, max] pairs, got {pair!r}")
        return intervals

    @field_validator("intervals")
    @classmethod
    def _are_ordered(cls, intervals: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        for low, high in intervals:
            if low > high:
                raise problem(f"expected [min, max] pairs with min at most max, got [{low:g}, {high:g}]")
        return intervals


class ConstantParameters(SamplerParameters):
    """A single value, always."""

    value: Number = 0.0
    """The value."""


SAMPLERS: dict[str, type[SamplerParameters]] = {
    "uniform": UniformParameters,
    "gaussian": GaussianParameters,
    "multirangeuniform": MultiRangeUniformParameters,
    "constant": ConstantParameters,
}
"""The parameters of each sampler type."""


class Sampler(Section):
    """A parameter that is drawn again for every episode."""

    sampler_type: str
    """The distribution."""

    sampler_parameters: SerializeAsAny[SamplerParameters]
    """Parameters of the distribution; sampler_type decides which keys exist."""

    @field_validator("sampler_type", mode="before")
    @classmethod
    def _is_known(cls, value: Any) -> str:
        return require_choice("sampler type", value, SAMPLERS)

    @field_validator("sampler_parameters", mode="before")
    @classmethod
    def _read_by_type(cls, value: Any, info: ValidationInfo) -> SamplerParameters:
        if "sampler_type" not in info.data:
            return SamplerParameters()  # the mistake in sampler_type is reported already
        return SAMPLERS[info.data["sampler_type"]].model_validate(value)


def _number_or_sampler(value: Any) -> Any:
    if isinstance(value, Sampler):
        return value
    if not isinstance(value, dict):
        return _constant(value, "a number or a sampler")
    return Sampler.model_validate(value)


def _constant(value: Any, what: str) -> float:
    if value is None or isinstance(value, list):
        raise expected(what, value)
    return number(int(value) if isinstance(value, bool) else value)


ParameterValue = Annotated[float | Sampler, BeforeValidator(_number_or_sampler)]
"""A constant, or a distribution to draw from."""


class CompletionCriteria(Section):
    """Criteria for the end of a lesson."""

    behavior: Text
    """Name of the behavior to watch."""

    measure: Literal["reward", "progress"] = "reward"
    """``reward``: mean return of the last episodes, of groups where there are groups. ``progress``: the fraction of
    max_steps used."""

    threshold: Number = 0.0
    """Value that the measure must exceed."""

    min_lesson_length: Count = 0
    """Minimum of episodes in the lesson."""

    signal_smoothing: Flag = True
    """Whether the mean return is smoothed over time."""

    require_reset: Flag = False
    """Whether the simulators are reset when the lesson ends."""

    @model_validator(mode="after")
    def _is_reachable(self) -> Self:
        if self.measure == "progress" and not 0 <= self.threshold <= 1:
            raise section_error(
                ("threshold",), f"expected a share of max_steps between 0 and 1, got {self.threshold:g}"
            )
        return self


class Lesson(Section):
    """One stage of a curriculum."""

    name: Text
    """Name of the lesson on the console."""

    value: ParameterValue
    """The parameter's value during the lesson."""

    completion_criteria: CompletionCriteria | None = None
    """Criteria for the end of the lesson, required for every lesson but the last."""


class CurriculumSettings(Section):
    """A parameter that changes as the agents learn."""

    curriculum: tuple[Lesson, ...]
    """The lessons in order."""

    @field_validator("curriculum")
    @classmethod
    def _has_lessons(cls, lessons: tuple[Lesson, ...]) -> tuple[Lesson, ...]:
        if not lessons:
            raise problem("expected at least one lesson, got an empty list")
        return lessons

    @model_validator(mode="after")
    def _can_be_finished(self) -> Self:
        for position, lesson in enumerate(self.curriculum[:-1]):
            if lesson.completion_criteria is None:
                raise section_error(
                    ("curriculum", position), f"lesson '{lesson.name}' needs completion_criteria to end by"
                )
        return self


def _any_form(value: Any) -> Any:
    if isinstance(value, CurriculumSettings | Sampler):
        return value
    if not isinstance(value, dict):
        return _constant(value, "a number, a sampler or a curriculum")
    if "curriculum" in value:
        return CurriculumSettings.model_validate(value)
    if "sampler_type" in value or "sampler_parameters" in value:
        return Sampler.model_validate(value)
    keys = ", ".join(map(str, value)) or "no keys"
    if "sampler-type" in value:
        keys += "; samplers are written {sampler_type: …, sampler_parameters: {…}} now"
    raise problem(
        "expected a number, a sampler (sampler_type, sampler_parameters) or a curriculum, "
        f"got a mapping with {keys}"
    )


EnvironmentParameter = Annotated[float | Sampler | CurriculumSettings, BeforeValidator(_any_form)]
"""A constant, a sampler, or a curriculum of either."""


def lessons_of(name: str, parameter: float | Sampler | CurriculumSettings) -> tuple[Lesson, ...]:
    """Returns the lessons of a parameter; one that never changes has a single lesson of its own name."""
    if isinstance(parameter, CurriculumSettings):
        return parameter.curriculum
    return (Lesson(name=name, value=parameter),)
