"""The search space of a sweep: a YAML file of parameters by their paths in the configuration.

behaviors.Walker.hyperparameters.learning_rate: {low: 1e-5, high: 1e-3, log: true}
behaviors.Walker.hyperparameters.batch_size: {choices: [256, 512, 1024]}
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from trainer_service.config import parse_run_options
from trainer_service.config.reading.document import Document, Problem, read_document
from trainer_service.config.reading.merge import merged
from trainer_service.config.reading.settings import split_path
from trainer_service.config.section import (
    Section,
    build_each,
    plain_message,
    root_errors,
    section_error,
)
from trainer_service.config.values import Flag, Number, Positive, expected, problem, shown
from trainer_service.errors import ConfigError
from unity_bridge.names import did_you_mean

Values = dict[str, Any]
"""A value for each parameter that has one, by path."""

_OWN = ("checkpoint_settings", "env_settings.seed")
"""Settings that a sweep sets itself, for each run."""


class Parameter(Section):
    """A setting that is searched: a range from ``low`` to ``high``, ``choices``, or one ``fixed`` value."""

    low: Number | None = None
    """Lower end of the range, included."""

    high: Number | None = None
    """Upper end of the range, included."""

    log: Flag = False
    """Whether the logarithm of the value is uniform, not the value."""

    step: Positive | None = None
    """Distance of neighboring values, counted from ``low``; null: any value of the range."""

    choices: tuple[Any, ...] | None = None
    """Values to choose from."""

    fixed: Any = None
    """The only value."""

    when: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """The condition: a value, or a list of values, of each of some other parameters. If it does not hold, the
    configuration keeps its own value."""

    int: Flag = False
    """Whether values of the range are whole numbers."""

    @field_validator("choices", mode="before")
    @classmethod
    def _are_distinct(cls, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not value:
            raise expected("a list of values", value)
        labels = [label(each) for each in value]
        if twice := next((each for each in labels if labels.count(each) > 1), None):
            raise problem(f"{twice} stands there twice")
        return tuple(value)

    @field_validator("when", mode="before")
    @classmethod
    def _are_lists(cls, value: Any) -> Any:
        return build_each(value, lambda _, wanted: wanted if isinstance(wanted, list | tuple) else [wanted])

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        given = self.model_fields_set
        kinds = [name for name in ("low", "choices", "fixed") if name in given]
        if len(kinds) != 1 or ("high" in given) != ("low" in given):
            raise problem("expected low and high, or choices, or fixed")
        if self.low is None or self.high is None:
            if extra := sorted({"log", "step", "int"} & given):
                raise section_error((extra[0],), "only a range from low to high has it")
            return self
        return self._checked_range(self.low, self.high)

    def _checked_range(self, low: float, high: float) -> Self:
        if low >= high:
            raise section_error(("low",), f"expected less than the high of {high:g}, got {low:g}")
        if self.log and low <= 0:
            raise section_error(("low",), f"expected more than 0 on a logarithmic scale, got {low:g}")
        if self.log and self.step is not None:
            raise section_error(("step",), "expected none on a logarithmic scale")
        if self.int:
            for name in ("low", "high", "step"):
                value = getattr(self, name)
                if value is not None and not float(value).is_integer():
                    raise section_error((name,), f"expected a whole number, got {value:g}")
        return self

    @property
    def is_range(self) -> bool:
        """Whether the parameter has a range of numbers."""
        return self.low is not None

    @property
    def options(self) -> tuple[Any, ...]:
        """The values to choose from: the choices, or the fixed value; none of a range."""
        return () if self.is_range else self.choices or (self.fixed,)

    def number(self, value: float) -> Any:
        """The number of the range nearest to ``value``."""
        low, high = self._ends
        spacing = self.step or (1 if self.int else None)
        if spacing is not None:
            last = math.floor((high - low) / spacing + 1e-9)
            value = low + spacing * min(max(round((value - low) / spacing), 0), last)
        value = min(max(value, low), high)
        return round(value) if self.int else float(f"{value:.12g}")  # no 0.30000000000000004

    def extremes(self) -> tuple[Any, ...]:
        """The values that a check tries: both ends of the range, or every choice."""
        return tuple(map(self.number, self._ends)) if self.is_range else self.options

    @property
    def fraction(self) -> float | None:
        """A number of a range that is not whole, as most that are drawn there; None if there is none."""
        if not self.is_range or self.int or self.step is not None:
            return None
        low, high = self._ends
        return float(self.number(low + (high - low) / math.pi))

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Space:
    """Parameters by path, each after the parameters that its condition names."""

    parameters: Mapping[str, Parameter]

    def to_json(self) -> dict[str, Any]:
        """The parameters as their file says them."""
        return {
            path: own.model_dump(mode="json", exclude_unset=True) for path, own in self.parameters.items()
        }

    def draw(self, choose: Callable[[str, Parameter], Any]) -> Values:
        """A value for each parameter whose condition holds, chosen by ``choose(path, parameter)``."""
        values: Values = {}
        for path, parameter in self.parameters.items():
            if is_met(parameter, values):
                values[path] = choose(path, parameter)
        return values

    def corners(self) -> Iterator[Values]:
        """Yields combinations that hold all pairs of extreme values of every two parameters.

        The other parameters have their first extreme value.
        """
        seen: set[str] = set()
        paths = list(self.parameters)
        for one, other in itertools.combinations_with_replacement(paths, 2):
            for pair in itertools.product(self.parameters[one].extremes(), self.parameters[other].extremes()):
                wanted = self._with_conditions(dict(zip((one, other), pair, strict=True)))
                values = self.draw(lambda path, own, wanted=wanted: wanted.get(path, own.extremes()[0]))  # type: ignore[misc]
                if (key := label(values)) not in seen:
                    seen.add(key)
                    yield values

    def fractions(self) -> Iterator[Values]:
        """Yields a combination with a number that is not whole for each parameter that has some."""
        for path, parameter in self.parameters.items():
            if parameter.fraction is not None:
                wanted = self._with_conditions({path: parameter.fraction})
                yield self.draw(lambda path, own, wanted=wanted: wanted.get(path, own.extremes()[0]))  # type: ignore[misc]

    def _with_conditions(self, wanted: Values) -> Values:
        """Adds the values of the parameters that the conditions of ``wanted`` require."""
        for path in reversed(list(self.parameters)):
            if path in wanted:
                for other, allowed in self.parameters[path].when.items():
                    wanted.setdefault(other, allowed[0])
        return wanted


def is_met(parameter: Parameter, values: Mapping[str, Any]) -> bool:
    """Whether the condition of a parameter holds for the values of those before it."""
    return all(
        other in values and label(values[other]) in map(label, allowed)
        for other, allowed in parameter.when.items()
    )


def short_text(values: Mapping[str, Any]) -> str:
    """Values for a message, each with the last key of its path, or with the whole path where two have one."""
    keys = [split_path(path)[-1] for path in values]
    names = [key if keys.count(key) == 1 else path for key, path in zip(keys, values, strict=True)]
    texts = (f"{value:.4g}" if isinstance(value, float) else label(value) for value in values.values())
    return ", ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))


def label(value: Any) -> str:
    """A value as a short text, different for different values."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def with_values(configuration: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, nested as in its file, with values at their paths."""
    for path, value in values.items():
        nested = value
        for key in reversed(split_path(path)):
            nested = {key: nested}
        configuration = merged(configuration, nested)
    return dict(configuration)


def read_space(source: str | os.PathLike[str] | Mapping[str, Any]) -> Space:
    """Reads a space from a file, or from a mapping with the structure of one.

    Raises:
        ConfigError: one line for every mistake.
    """
    document = (
        Document("space", dict(source))
        if isinstance(source, Mapping)
        else read_document(Path(source), "parameters by path")
    )
    try:
        parameters = build_each(document.values, _parameter)
        space = Space(_ordered(parameters))
    except ValidationError as error:
        found = [Problem(details["loc"], plain_message(details)) for details in root_errors(error)]
        raise ConfigError(*map(document.at, [*document.problems, *found])) from None
    if document.problems:
        raise ConfigError(*map(document.at, document.problems))
    if not parameters:
        raise ConfigError(f"{document.label}: expected at least one parameter, got an empty mapping")
    return space


def require_valid(space: Space, configuration: Mapping[str, Any], name: str) -> None:
    """Checks the configuration with the extreme values of all parameters, two parameters at a time.

    Args:
        space: the parameters.
        configuration: nested as in its file.
        name: of the space in messages.

    Raises:
        ConfigError: a path leads to no setting, or values are refused, one line for each mistake.
    """
    parse_run_options(configuration)  # mistakes of its own are no mistakes of the space
    found: dict[str, None] = dict.fromkeys(_unlisted(space, configuration, name))
    for combinations in (space.corners(), space.fractions()):
        for values in () if found else combinations:
            try:
                parse_run_options(with_values(configuration, values), label=name)
            except ConfigError as error:
                found |= dict.fromkeys(map(_with_hint, error.problems))
        if found:
            raise ConfigError(*found)


def _with_hint(problem: str) -> str:
    """A mistake in a value, with the key that makes a range one of whole numbers."""
    is_fraction = re.search(r"expected a whole number, got [\d.e-]+$", problem)
    return f"{problem}; say int: true" if is_fraction else problem


def _unlisted(space: Space, configuration: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yields a mistake for each behavior that the configuration does not have, where it lists its behaviors."""
    listed = configuration.get("behaviors") or {}
    if configuration.get("default_settings") is not None:
        return  # any behavior may show up
    for path in space.parameters:
        first, *others = split_path(path)
        if first == "behaviors" and others and others[0] not in listed:
            hint = did_you_mean(others[0], listed)
            yield f"{name}: {path}: the configuration has no behavior '{others[0]}'{hint}"


def _parameter(path: str, settings: Any) -> Parameter:
    if settings is None or not isinstance(settings, Mapping):
        raise expected(
            "a mapping such as {low: 1e-5, high: 1e-3, log: true} or {choices: [64, 128]}", settings
        )
    try:
        dotted = ".".join(split_path(path))
    except ConfigError as error:
        raise problem(str(error)) from None
    if own := next((each for each in _OWN if f"{dotted}.".startswith(f"{each}.")), None):
        raise problem(f"{own} is set for each run: search another setting")
    return Parameter.model_validate(dict(settings))


def _ordered(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Sorts the parameters, each after the parameters that its condition names. Raises ValidationError."""
    for path, parameter in parameters.items():
        for other, allowed in parameter.when.items():
            _require_reachable(path, other, allowed, parameters)
    try:
        order: Sequence[str] = [*TopologicalSorter({p: q.when for p, q in parameters.items()}).static_order()]
    except CycleError as error:
        circle = error.args[1]
        raise section_error(
            (circle[0], "when"), f"conditions lead in a circle: {' <- '.join(circle)}"
        ) from None
    return {path: parameters[path] for path in order}


def _require_reachable(
    path: str, other: str, allowed: Sequence[Any], parameters: Mapping[str, Parameter]
) -> None:
    """Raises ValidationError for a condition that never holds."""
    at = (path, "when", other)
    if other not in parameters:
        raise section_error(at, f"not a parameter of the space{did_you_mean(other, parameters)}")
    known = parameters[other].options
    if not known:
        raise section_error(at, "expected a parameter with choices, got a range")
    for value in allowed:
        if label(value) not in map(label, known):
            choices = ", ".join(map(label, known))
            raise section_error(at, f"expected one of its choices, {choices}, got {shown(value)}", value)
