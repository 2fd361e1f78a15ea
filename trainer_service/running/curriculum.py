"""The curriculum: the lesson of each environment parameter, and when the next one begins.

A parameter that never changes has one lesson. A lesson with completion criteria watches one behavior and ends when
at least ``min_lesson_length`` of its episodes have ended, and

    step / max_steps > threshold     (measure ``progress``), or
    m > threshold                    (measure ``reward``; m is the mean of the last returns),
    s > threshold                    (the same with ``signal_smoothing``: s ← ¼ s + ¾ m with every episode).

Returns are raw: of groups where there are groups, else of agents (``counted_returns``). ``m`` reaches back as far as
the longest ``min_lesson_length`` of any lesson that watches the behavior. Whenever a parameter moves on, all returns
are dropped and counted again, those for other parameters too: returns of another task say nothing about this one.

ML-Agents smooths once for every message of a simulator, ended episode or not, and begins from zero. So its ``s``
is ``m`` after a few messages, but until then a negative return looks better than it was, and the ``s`` of the lesson
before counts too. Here every episode counts once and the first ``m`` is taken as it is: a lesson ends where ML-Agents'
settled value would end it, and never because of a start from zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainer_service.config import Lesson, Sampler
from trainer_service.config import environment_parameters as config
from trainer_service.errors import ConfigError
from unity_bridge.side_channels import (
    EnvironmentParameterMessage,
    FloatParameter,
    GaussianSampler,
    MultiRangeUniformSampler,
    UniformSampler,
)

Parameters = Mapping[str, float | Sampler | config.CurriculumSettings]
"""``environment_parameters`` of a configuration, by name."""

_SMOOTHING = 0.25
"""Weight of the previous smoothed return when an episode ends."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one behavior since the last call of ``advance``."""

    fraction: float
    """Fraction of max_steps that are used."""

    returns: Sequence[float] = ()
    """Returns that count of the episodes that ended, oldest first."""


@dataclass(frozen=True, slots=True)
class LessonHistory:
    """Returns of one behavior that lessons remember between calls of ``advance``."""

    recent_returns: tuple[float, ...] = ()
    """Returns of the last episodes, newest first."""

    mean_returns: Mapping[str, float] = field(default_factory=dict)
    """Mean returns to compare with the threshold, by parameter with a lesson that watches this behavior."""


@dataclass(frozen=True, slots=True)
class LessonState:
    """Where lessons are at one moment, as a checkpoint of a behavior holds it."""

    numbers: Mapping[str, int]
    """Number of the current lesson, by parameter."""

    history: LessonHistory
    """Returns of the behavior itself."""


@dataclass(frozen=True, slots=True)
class CurrentLesson:
    """The current lesson of one parameter."""

    number: int
    """Index of the lesson, from 0."""

    name: str


@dataclass(frozen=True, slots=True)
class LessonChange:
    """A parameter's step to its next lesson."""

    parameter: str

    require_reset: bool
    """Whether simulators must be reset after the lesson that ended."""


class Curriculum:
    """A state machine of all parameters' lessons. Without parameters it does nothing."""

    def __init__(self, parameters: Parameters, seed: int = 0, *, again: bool = False) -> None:
        """Starts in the first lessons.

        Args:
            parameters: by name.
            seed: of the run, from which samplers without a seed derive theirs.
            again: whether seeds that are given are replaced as well.

        Raises:
            ConfigError: a parameter that cannot be told to a simulator.
        """
        self._lessons = {name: config.lessons_of(name, each) for name, each in parameters.items()}
        self._messages = {
            name: [_message(name, lesson) for lesson in each] for name, each in self._lessons.items()
        }
        self._seed = seed
        self._offsets = _seed_offsets(self._lessons, again=again)
        self._numbers = dict.fromkeys(self._lessons, 0)
        self._returns: dict[str, deque[float]] = {
            behavior: deque(maxlen=length) for behavior, length in _history_lengths(self._lessons).items()
        }
        self._mean_returns: dict[str, float] = {}

    def resume(self, lessons: Mapping[str, int], histories: Mapping[str, LessonHistory]) -> None:
        """Restores the lessons of a run.

        Args:
            lessons: numbers by parameter. A number beyond the last lesson means the last one.
            histories: remembered returns, by behavior.
        """
        for name, each in self._lessons.items():
            self._numbers[name] = min(lessons.get(name, 0), len(each) - 1)
        for behavior, history in histories.items():
            self._restore_history(behavior, history)

    @property
    def lessons(self) -> dict[str, CurrentLesson]:
        """The current lesson of each parameter, in the order of the configuration."""
        return {
            name: CurrentLesson(number, self._lessons[name][number].name)
            for name, number in self._numbers.items()
        }

    @property
    def watched_behaviors(self) -> frozenset[str]:
        """Behaviors that some lesson watches."""
        return frozenset(self._returns)

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each parameter's current lesson, in the order of the configuration."""
        return dict(self._numbers)

    def messages(self, simulator: int = 0) -> list[EnvironmentParameterMessage]:
        """Returns the messages that set all parameters to their current lessons in a simulator of this number."""
        return [self._for_simulator(simulator, *current) for current in self._numbers.items()]

    def describe(self, parameter: str) -> str:
        """Describes the parameter's lesson, in the words that ML-Agents' users look for in the log."""
        number = self._numbers[parameter]
        name, value = self._lessons[parameter][number].name, _described(self._messages[parameter][number])
        return f"Parameter '{parameter}' is in lesson '{name}' and has value '{value}'."

    def advance(self, progress: Mapping[str, Progress]) -> list[LessonChange]:
        """Records the behaviors' progress, and moves each parameter on by one lesson where its lesson is completed."""
        for behavior in self._returns:
            if behavior in progress:
                for episode_return in progress[behavior].returns:
                    self._record_return(behavior, episode_return)
        changes = [
            LessonChange(name, criteria.require_reset)
            for name, criteria in self._criteria()
            if criteria.behavior in progress
            and self._is_completed(name, criteria, progress[criteria.behavior])
        ]
        if changes:
            self._move_on(changes)
        return changes

    def history_of(self, behavior: str) -> LessonHistory:
        """Returns a behavior's remembered returns, to resume from later."""
        mean_returns = {
            name: self._mean_returns[name]
            for name, criteria in self._criteria()
            if criteria.behavior == behavior and name in self._mean_returns
        }
        return LessonHistory(tuple(self._returns.get(behavior, ())), mean_returns)

    def _for_simulator(self, simulator: int, name: str, number: int) -> EnvironmentParameterMessage:
        message, offset = self._messages[name][number], self._offsets.get((name, number))
        if offset is None or isinstance(message, FloatParameter):
            return message
        return replace(message, seed=_sampler_seed(self._seed, offset, simulator))

    def _criteria(self) -> list[tuple[str, config.CompletionCriteria]]:
        """Returns the criteria of the current lessons, by parameter; last lessons are left out."""
        in_force = ((name, each, self._numbers[name]) for name, each in self._lessons.items())
        return [
            (name, criteria)
            for name, each, number in in_force
            if number < len(each) - 1 and (criteria := each[number].completion_criteria) is not None
        ]

    def _record_return(self, behavior: str, episode_return: float) -> None:
        returns = self._returns[behavior]
        returns.appendleft(episode_return)
        for name, criteria in self._criteria():
            if (
                criteria.behavior == behavior
                and criteria.measure == "reward"
                and len(returns) >= criteria.min_lesson_length
            ):
                mean_return = sum(returns) / len(returns)
                if criteria.signal_smoothing and name in self._mean_returns:
                    mean_return = _SMOOTHING * self._mean_returns[name] + (1 - _SMOOTHING) * mean_return
                self._mean_returns[name] = mean_return

    def _is_completed(self, name: str, criteria: config.CompletionCriteria, progress: Progress) -> bool:
        if len(self._returns[criteria.behavior]) < criteria.min_lesson_length:
            return False
        if criteria.measure == "progress":
            return progress.fraction > criteria.threshold
        return name in self._mean_returns and self._mean_returns[name] > criteria.threshold

    def _move_on(self, changes: Sequence[LessonChange]) -> None:
        for change in changes:
            self._numbers[change.parameter] += 1
        for returns in self._returns.values():
            returns.clear()
        self._mean_returns.clear()

    def _restore_history(self, behavior: str, history: LessonHistory) -> None:
        if behavior in self._returns:
            self._returns[behavior].extend(history.recent_returns[: self._returns[behavior].maxlen])
            watching = {name for name, criteria in self._criteria() if criteria.behavior == behavior}
            self._mean_returns.update(
                {name: history.mean_returns[name] for name in watching & history.mean_returns.keys()}
            )


def lesson_mismatches(parameters: Parameters, lessons: Mapping[str, int]) -> list[str]:
    """Describes where parameters do not fit the lessons that a run had reached, and the consequence; one line each."""
    lines = []
    for name, number in lessons.items():
        if name not in parameters:
            lines.append(
                f"the run was in lesson number {number} of environment parameter '{name}', which the "
                "configuration no longer names: simulators run without it"
            )
        elif number >= (count := len(config.lessons_of(name, parameters[name]))):
            last = config.lessons_of(name, parameters[name])[-1].name
            lines.append(
                f"the run was in lesson number {number} of environment parameter '{name}', which now has only "
                f"{count} (counted from 0): it continues in the last one, '{last}'"
            )
    new = [f"'{name}'" for name in parameters if name not in lessons]
    if new and lessons:
        lines.append(f"environment parameters {', '.join(new)} are new in this run: they begin in lesson 0")
    return lines


def _history_lengths(lessons: Mapping[str, Sequence[Lesson]]) -> dict[str, int]:
    """Returns how many last returns count, by behavior that a lesson watches."""
    lengths: dict[str, int] = {}
    for each in lessons.values():
        for lesson in each[:-1]:
            if criteria := lesson.completion_criteria:
                known = lengths.get(criteria.behavior, 1)
                lengths[criteria.behavior] = max(known, criteria.min_lesson_length)
    return lengths


def _seed_offsets(lessons: Mapping[str, Sequence[Lesson]], *, again: bool) -> dict[tuple[str, int], int]:
    """Returns the position of each lesson among those without a seed, by parameter and number, in the file's order.

    Constants count too, as in ML-Agents, though they draw nothing.
    """
    unseeded = [
        (name, number)
        for name, each in lessons.items()
        for number, value in enumerate(lesson.value for lesson in each)
        if again or not isinstance(value, Sampler) or value.sampler_parameters.seed == -1
    ]
    return {key: offset for offset, key in enumerate(unseeded)}


def _sampler_seed(seed: int, offset: int, simulator: int) -> int:
    """Returns a sampler's seed, an int32: ML-Agents' in simulator 0, independent of all others in the next ones."""
    if simulator == 0:
        return (seed + offset) % 2**31
    return int(np.random.SeedSequence((seed, offset, simulator)).generate_state(1)[0]) >> 1


def _message(name: str, lesson: Lesson) -> EnvironmentParameterMessage:
    try:
        if not isinstance(lesson.value, Sampler):
            return FloatParameter(name, lesson.value)
        match lesson.value.sampler_parameters:
            case config.UniformParameters(seed=seed, min_value=low, max_value=high):
                return UniformSampler(name, seed, low, high)
            case config.GaussianParameters(seed=seed, mean=mean, st_dev=st_dev):
                return GaussianSampler(name, seed, mean, st_dev)
            case config.MultiRangeUniformParameters(seed=seed, intervals=intervals):
                return MultiRangeUniformSampler(name, seed, intervals)
            case config.ConstantParameters(value=value):
                return FloatParameter(name, value)
    except ValueError as error:
        raise ConfigError(f"environment_parameters.{name}: lesson '{lesson.name}': {error}") from None
    raise TypeError(f"a sampler of type {lesson.value.sampler_type} cannot be told to a simulator")


def _described(message: EnvironmentParameterMessage) -> str:
    """Describes a value as ML-Agents words it."""
    match message:
        case FloatParameter(value=value):
            return f"Float: value={value}"
        case UniformSampler(min_value=low, max_value=high):
            return f"Uniform sampler: min={low}, max={high}"
        case GaussianSampler(mean=mean, st_dev=st_dev):
            return f"Gaussian sampler: mean={mean}, stddev={st_dev}"
        case MultiRangeUniformSampler(intervals=intervals):
            return f"MultiRangeUniform sampler: intervals={[list(each) for each in intervals]}"
