"""Curves: one metric of one behavior over a run, and the figures that are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainer_service.commands.common.aggregates import Estimate, estimate, interquartile_mean
from unity_bridge.arrays import Floats, Integers

_FINAL_SHARE = 0.1
"""The share of a run's steps whose values make its final score."""

_MAX_POINTS = 200
"""Limit of the points of an averaged curve: more than a picture shows."""

_RESAMPLES = 2_000
"""Bootstrap samples for each point of an averaged curve, as rliable takes."""


class Reached(NamedTuple):
    """When a run first reached a threshold."""

    step: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One metric of one behavior in one run, at every summary that has it. Not empty."""

    steps: Integers
    """Agent steps, ascending. Shape [N]."""

    seconds: Floats
    """Since the start of the run, the time between an interruption and its resumption left out. Shape [N]."""

    values: Floats
    """Finite. Shape [N]."""

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.seconds) == len(self.values) > 0:
            raise ValueError(f"{len(self.steps)} steps, {len(self.seconds)} times, {len(self.values)} values")

    @classmethod
    def of(cls, points: Iterable[tuple[int, float, float]]) -> Curve:
        """The curve through (step, seconds, value). Where a step comes twice, the later point counts."""
        ordered = sorted({step: (step, seconds, value) for step, seconds, value in points}.values())
        steps, seconds, values = zip(*ordered, strict=True)
        return cls(np.array(steps, np.int64), np.array(seconds, np.float64), np.array(values, np.float64))

    def until(self, step: int) -> Curve | None:
        """The part up to ``step``; None if it begins later."""
        kept = int(np.searchsorted(self.steps, step, side="right"))
        return Curve(self.steps[:kept], self.seconds[:kept], self.values[:kept]) if kept else None

    @property
    def final(self) -> float:
        """The mean value in the last tenth of the steps: one summary alone is a matter of chance."""
        return float(self.values[self.steps > (1.0 - _FINAL_SHARE) * self.steps[-1]].mean())

    def area(self, first: float, last: float) -> float:
        """The area under the curve between two steps over their distance: its mean height. NaN without distance."""
        if last <= first:
            return float("nan")
        inside = self.steps[(self.steps > first) & (self.steps < last)]
        steps = np.concatenate([[first], inside, [last]])
        heights = np.interp(steps, self.steps, self.values)
        return float(np.trapezoid(heights, steps) / (last - first))

    def first_reaching(self, threshold: float) -> Reached | None:
        """When the value was at least ``threshold`` for the first time; None if it never was."""
        (reaching,) = np.nonzero(self.values >= threshold)
        return (
            Reached(int(self.steps[reaching[0]]), float(self.seconds[reaching[0]])) if len(reaching) else None
        )


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The interquartile mean of several runs over steps or seconds."""

    x: Floats
    """Steps or seconds. Shape [N]."""

    iqm: Floats
    """Shape [N]."""

    low: Floats
    """The lower end of the bootstrap interval, NaN for a single run. Shape [N]."""

    high: Floats
    """Shape [N]."""


def shared_range(axes: Sequence[Floats | Integers]) -> tuple[float, float]:
    """The range in which all of these ascending axes have values; empty if the second number is not larger."""
    return float(max(axis[0] for axis in axes)), float(min(axis[-1] for axis in axes))


def band(
    axes: Sequence[Floats | Integers], values: Sequence[Floats], strata: Integers, *, holds_last: bool = False
) -> Band:
    """The averaged curve of runs, each interpolated linearly between its summaries.

    Args:
        axes: of each run, ascending. Shapes [N_run].
        values: of each run. Shapes [N_run].
        strata: of each run, see ``estimate``.
        holds_last: whether a run keeps its last value after its end, so that the band ends with the last of them
            instead of the first. Over seconds it should: a quick run that used its budget has not forgotten anything.
    """
    first, last = shared_range(axes)
    if holds_last:
        last = float(max(axis[-1] for axis in axes))
    x = np.unique(np.concatenate([axis[(axis >= first) & (axis <= last)] for axis in axes])).astype(
        np.float64
    )
    if len(x) > _MAX_POINTS:
        x = np.linspace(first, last, _MAX_POINTS)
    at = np.stack([np.interp(x, axis, own) for axis, own in zip(axes, values, strict=True)], axis=1)
    points = [_estimate(row, strata) for row in at]
    columns = np.array(points, np.float64).reshape(-1, 3).T
    return Band(x, *columns)


def _estimate(scores: Floats, strata: Integers) -> Estimate:
    return estimate(interquartile_mean, scores, strata, resamples=_RESAMPLES)
