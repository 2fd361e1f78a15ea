"""Summaries: the statistics of one behavior over an interval, and the line that logs them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.episode_scores import EpisodeMeans
from trainer_service.running.curriculum import CurrentLesson
from unity_bridge.arrays import Floats

_ELO = "Self-play/ELO"
_REWARD = "Environment/Cumulative Reward"
_GROUP_REWARD = "Environment/Group Cumulative Reward"
_LENGTH = "Environment/Episode Length"
MEMBER_REWARD = "Environment/Cumulative Reward/"
"""The beginning of the tags of a heterogeneous group's members, which end with their behaviors' names."""

_LESSON = "Environment/Lesson Number/"
_ENV_STEPS = "Environment/Env Steps"
_REPLACED = "Environment/Replaced Values"

EPISODE_TAGS = frozenset({_REWARD, _GROUP_REWARD, _LENGTH, _ENV_STEPS})
"""Tags of the episodes and environment steps that the trainer counted, which have keys of their own in files."""

FILM_TAG = "Videos_Test"
"""XuanCe's tag of the films of evaluations."""

SIMULATOR = "Simulator/"
"""The beginning of the tag of a simulator's statistic that has the name of another one."""

_OWN = (
    "Losses/", "Policy/", "Self-play/", "Consensus/", "Replay/", "Saving/", "Distributed/", "Evaluation/",
    "Hyperparameters/", _LESSON, MEMBER_REWARD,
)  # fmt: skip
"""The beginnings of the trainer's own tags."""

_OWN_TAGS = {
    *EPISODE_TAGS,
    *(f"{tag}_hist" for tag in EPISODE_TAGS),
    _REPLACED,
    FILM_TAG,
    "Step",
    "Is Training",
}

_SUFFIXES = ("", "k", "M", "G", "T")

_BINS = 30


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeStats(EpisodeMeans):
    """The episodes that ended between two summaries. Means are None when there was none."""

    returns: Floats = field(default_factory=lambda: np.empty(0))
    """Sum of one agent's own rewards over its episode, before strengths and normalisation. Shape [E]."""

    lengths: Floats = field(default_factory=lambda: np.empty(0))
    """Decisions of that episode. Shape [E]."""

    group_returns: Floats = field(default_factory=lambda: np.empty(0))
    """The group's reward and its members' own, summed over its episode. Shape [G]; empty without groups."""

    counted_returns: Floats | None = None
    """The returns that count: of groups, and of agents without a group. Shape [C]; None where they are ``returns``."""

    @property
    def counted(self) -> Floats:
        """The returns that count."""
        return self.returns if self.counted_returns is None else self.counted_returns

    def __post_init__(self) -> None:
        if self.returns.shape != self.lengths.shape:
            raise ValueError(f"{self.returns.shape} returns for {self.lengths.shape} episode lengths")

    @property
    def episodes(self) -> int:
        """Number of agents' episodes that ended."""
        return len(self.returns)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """All values of one statistic between two summaries."""

    total: float
    """Sum of the values."""

    count: int
    """Number of values, at least 1."""

    is_sum: bool = False
    """Whether the sum stands for the values, not their mean: a simulator may ask for that."""

    samples: Floats = field(default_factory=lambda: np.empty(0))
    """The values themselves, or as many as were kept: shape [count] at most, empty where none were."""

    has_histogram: bool = False
    """Whether a histogram of them is wanted."""

    @classmethod
    def of(cls, value: float) -> Series:
        """Returns the series of a single value."""
        return cls(value, 1)

    @classmethod
    def of_samples(cls, samples: Floats) -> Series:
        """Returns a series that has a histogram too. samples: shape [count], not empty."""
        return cls(float(samples.sum()), len(samples), samples=samples, has_histogram=True)

    @property
    def histogram_samples(self) -> Floats:
        """The samples that a histogram has room for: it needs a range. Empty where none is wanted."""
        return self.samples[np.isfinite(self.samples)] if self.has_histogram else np.empty(0)

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return self.total / self.count

    @property
    def value(self) -> float:
        """The one number that stands for the values: their sum or mean."""
        return self.total if self.is_sum else self.mean


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Summary:
    """The statistics of one behavior between two multiples of ``summary_freq``."""

    behavior: str

    step: int
    """Agent steps of the behavior."""

    env_steps: int | None = None
    """Environment steps of the run by then; None where they are not counted, as in evaluations."""

    wall_s: float
    """Seconds since the start of the run."""

    steps_per_s: float
    """Agent steps per second since the last summary."""

    is_training: bool = True
    """False in inference and after ``max_steps``."""

    stats: EpisodeStats = field(default_factory=EpisodeStats)

    replaced_values: int = 0
    """Rewards and observed numbers that could not be used, such as NaN, and became 0."""

    series: Mapping[str, Series] = field(default_factory=dict)
    """Statistics by ML-Agents' tags: ``Losses/Policy Loss``, ``Policy/Entropy`` …, and tags of simulators."""

    lessons: Mapping[str, CurrentLesson] = field(default_factory=dict)
    """The current lesson of each environment parameter."""

    @property
    def member_returns(self) -> dict[str, float]:
        """The mean return of the agents of each member of a heterogeneous group; empty without one."""
        return {
            tag.removeprefix(MEMBER_REWARD): series.mean
            for tag, series in self.series.items()
            if tag.startswith(MEMBER_REWARD)
        }

    def tagged(self) -> dict[str, Series]:
        """Returns all statistics by tag, the trainer's first. None can replace those of episodes and lessons."""
        stats = self.stats
        tags = {tag: series for tag, series in self.series.items() if tag not in EPISODE_TAGS}
        tags |= {f"{_LESSON}{name}": Series.of(lesson.number) for name, lesson in self.lessons.items()}
        for tag, values in ((_REWARD, stats.returns), (_GROUP_REWARD, stats.group_returns)):
            if len(values):
                tags[tag] = Series.of_samples(values)
        if len(stats.lengths):
            tags[_LENGTH] = Series(float(stats.lengths.sum()), len(stats.lengths), samples=stats.lengths)
        if self.env_steps is not None:
            tags[_ENV_STEPS] = Series.of(self.env_steps)
        if self.replaced_values:
            tags[_REPLACED] = Series(self.replaced_values, 1, is_sum=True)
        return dict(sorted(tags.items(), key=lambda each: not is_reserved(each[0])))


def is_reserved(tag: str) -> bool:
    """Whether only the trainer uses a tag."""
    return tag.startswith(_OWN) or tag in _OWN_TAGS


def histogram(samples: Floats) -> tuple[NDArray[np.int64], Floats]:
    """How many finite samples lie in each of 30 equal bins over their range: counts [30] and edges [31]."""
    counts, edges = np.histogram(samples, bins=_BINS)
    return counts.astype(np.int64), edges


def format_return(value: float, spread: float | None = None) -> str:
    """Formats a return: three decimals as in ML-Agents, four significant digits for very small and large values.

    A mean and its ``spread`` get the same form.
    """
    scale = max(abs(value), abs(spread or 0.0))
    return f"{value:.3f}" if scale == 0 or 0.01 <= scale < 1e6 else f"{value:.4g}"


def short_number(value: float, digits: int = 4) -> str:
    """Formats a number in a few characters: 0.25, 150k, 2.5M, 3e-05."""
    value = float(f"{value:.{digits}g}")  # rounded first: 999,999 in three digits is 1M, not 1000k
    size = abs(value)
    if size != 0 and (size < 1e-3 or size >= 1e15):
        return f"{value:.3g}"
    power = min(int(math.log10(size) // 3), len(_SUFFIXES) - 1) if size >= 1000 else 0
    return f"{value / 1000.0**power:.{digits}g}{_SUFFIXES[power]}"


def format_duration(seconds: float) -> str:
    """Formats a duration in words: ``40 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def summary_line(summary: Summary) -> str:
    """Returns the summary as ML-Agents words it: ``B. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: …``."""
    stats = summary.stats
    parts = [summary.behavior, f"Step: {summary.step}", f"Time Elapsed: {summary.wall_s:.3f} s"]
    if stats.mean_return is None:
        parts.append("No episode was completed since last summary")
    else:
        mean, deviation = stats.mean_return, stats.std_return or 0.0
        parts.append(f"Mean Reward: {format_return(mean, deviation)}")
        if stats.mean_group_return is None:
            parts.append(f"Std of Reward: {format_return(deviation, mean)}")
        else:
            parts.append(f"Mean Group Reward: {format_return(stats.mean_group_return)}")
    parts += [f"{name}: {format_return(mean)}" for name, mean in summary.member_returns.items()]
    parts.append("Training" if summary.is_training else "Not Training")
    if _ELO in summary.series:
        parts.append(f"ELO: {summary.series[_ELO].value:.3f}")
    return ". ".join(parts) + "."
