"""The comparison of groups of runs: scores with intervals, and averaged curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from trainer_service.commands.common.aggregates import (
    Estimate,
    estimate,
    interquartile_mean,
    probability_of_improvement,
)
from trainer_service.commands.common.curves import Band, Curve, Reached, band, shared_range
from trainer_service.commands.common.run_record import CurveAxis, RunRecord, metric_of
from trainer_service.commands.compare.grouping import RunGroup
from trainer_service.errors import UserError
from unity_bridge.arrays import Floats, Integers
from unity_bridge.names import did_you_mean

RETURN, GROUP_RETURN = "mean_return", "mean_group_return"

_FEW_RUNS = 5
"""Runs of a group below which its interval is a rough one."""


@dataclass(frozen=True, slots=True, eq=False)
class RunScore:
    """The figures of one run."""

    run: RunRecord
    curve: Curve
    final: float
    """Mean value in the last tenth of its steps."""

    area: float
    """Mean height of its curve over the steps that all compared runs have; NaN where there are none."""

    reached: Reached | None
    """When the run first reached the threshold; None if it never did, or without a threshold."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupScore:
    """The scores of one group and of its runs."""

    group: str
    runs: tuple[RunScore, ...]
    """The runs that have the metric; not empty."""

    final: Estimate
    """Interquartile mean over runs."""

    area: Estimate
    """Interquartile mean over runs."""

    steps_to_threshold: float
    """Median over runs; infinite where half of them never reached it."""

    seconds_to_threshold: float
    """Likewise."""

    improvement: Estimate | None
    """The probability that a run of this group ends higher than one of the first group; None for the first group. It
    has no interval if either group has few runs."""

    over_steps: Band
    """The curve over agent steps. It ends where the shortest run ends."""

    over_seconds: Band
    """The curve over seconds. It ends where the longest run ends; shorter runs keep their last value."""

    @property
    def num_reached(self) -> int:
        """The number of runs that reached the threshold."""
        return sum(score.reached is not None for score in self.runs)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A comparison of groups of runs, by one metric for each behavior that they have in common."""

    groups: tuple[RunGroup, ...]
    """The groups with at least one run that has the metric."""

    threshold: float | None
    metrics: Mapping[str, str]
    """The metric by behavior."""

    behaviors: Mapping[str, tuple[GroupScore, ...]]
    """By behavior, in the order of ``groups``; a group without any value of the metric is left out."""

    notes: tuple[str, ...]
    """Reasons to read the figures with care."""

    x: CurveAxis = "steps"
    """The x axis of the curves."""


def compare(
    groups: Sequence[RunGroup],
    *,
    metric: str | None = None,
    behavior: str | None = None,
    threshold: float | None = None,
    until: int | None = None,
) -> Comparison:
    """Compares groups of runs.

    Args:
        groups: not empty, the first being what others are compared with.
        metric: a key of metrics.jsonl or a tag of TensorBoard. None: the return of groups where all runs have one,
            else the return.
        behavior: the one to compare; None for all that the runs have in common.
        threshold: a value to reach.
        until: steps after which nothing counts.

    Raises:
        UserError: the runs have no behavior in common, or no run has the metric.
    """
    runs = [run for group in groups for run in group.runs]
    counted = [run for run in runs if run.curves]
    if not counted:
        names = ", ".join(f"'{run.name}'" for run in runs)
        raise UserError(f"{names}: no summary was written yet; expected at least one in metrics.jsonl")
    behaviors = _common_behaviors(counted, behavior)
    metrics = {name: _metric(counted, name, metric) for name in behaviors}
    scores: dict[str, tuple[GroupScore, ...]] = {}
    notes: list[str] = []
    for name in behaviors:
        curves = _curves(runs, name, metrics[name], until)
        notes += _missing(runs, curves, name, metrics[name])
        if not curves:
            limit = "" if until is None else f" up to step {until:,}"
            raise UserError(f"behavior '{name}': no run has a value of '{metrics[name]}'{limit}")
        scores[name] = _scores(groups, curves, threshold)
        notes += _unequal_lengths(name, curves)
        notes += _few_pairs(name, scores[name])
    found = {score.group for own in scores.values() for score in own}
    kept = tuple(group for group in groups if group.name in found)
    return Comparison(kept, threshold, metrics, scores, (*notes, *_about_seeds(kept)))


def _common_behaviors(runs: Sequence[RunRecord], wanted: str | None) -> list[str]:
    common = [name for name in runs[0].curves if all(name in run.curves for run in runs)]
    of_each = "; ".join(f"'{run.name}' has {', '.join(run.curves)}" for run in runs)
    if wanted is not None:
        if not any(wanted in run.curves for run in runs):
            raise UserError(f"no run has a behavior '{wanted}': {of_each}")
        return [wanted]
    if not common:
        raise UserError(f"the runs have no behavior in common: {of_each}")
    return common


def _metric(runs: Sequence[RunRecord], behavior: str, wanted: str | None) -> str:
    own = [run.curves[behavior] for run in runs if behavior in run.curves]
    if wanted is None:
        return default_metric(own)
    known = sorted({name for curves in own for name in curves})
    for name in (wanted, metric_of(wanted), wanted.lower()):
        if name in known:
            return name
    hint = did_you_mean(wanted, known)
    raise UserError(
        f"no run has a metric '{wanted}' of behavior '{behavior}'{hint}; there are: {', '.join(known)}"
    )


def default_metric(curves: Iterable[Mapping[str, Curve]]) -> str:
    """The return of groups where all have one, else the return. curves: by metric, of each run."""
    return GROUP_RETURN if all(GROUP_RETURN in own for own in curves) else RETURN


def _curves(
    runs: Iterable[RunRecord], behavior: str, metric: str, until: int | None
) -> dict[RunRecord, Curve]:
    found = {run: run.curves.get(behavior, {}).get(metric) for run in runs}
    cut = {
        run: curve if until is None else curve.until(until)
        for run, curve in found.items()
        if curve is not None
    }
    return {run: curve for run, curve in cut.items() if curve is not None}


def _scores(
    groups: Sequence[RunGroup], curves: Mapping[RunRecord, Curve], threshold: float | None
) -> tuple[GroupScore, ...]:
    shared = shared_range([curve.steps for curve in curves.values()])
    found: list[GroupScore] = []
    for group in groups:
        known = [(run, own) for run, own in zip(group.runs, group.strata, strict=True) if run in curves]
        if known:
            runs = tuple(_score(run, curves[run], shared, threshold) for run, _ in known)
            strata = np.array([stratum for _, stratum in known], np.int64)
            found.append(_group_score(group.name, runs, strata, found[0] if found else None))
    return tuple(found)


def _score(run: RunRecord, curve: Curve, shared: tuple[float, float], threshold: float | None) -> RunScore:
    reached = None if threshold is None else curve.first_reaching(threshold)
    return RunScore(run, curve, curve.final, curve.area(*shared), reached)


def _group_score(
    name: str, runs: tuple[RunScore, ...], strata: Integers, first: GroupScore | None
) -> GroupScore:
    of_runs = partial(estimate, interquartile_mean, strata=strata)
    curves = [score.curve for score in runs]
    values = [curve.values for curve in curves]
    final = _finals(runs)
    return GroupScore(
        group=name,
        runs=runs,
        final=of_runs(scores=final),
        area=of_runs(scores=np.array([score.area for score in runs])),
        steps_to_threshold=_median([score.reached and score.reached.step for score in runs]),
        seconds_to_threshold=_median([score.reached and score.reached.seconds for score in runs]),
        improvement=None if first is None else _improvement(final, strata, _finals(first.runs)),
        over_steps=band([curve.steps for curve in curves], values, strata),
        over_seconds=band([curve.seconds for curve in curves], values, strata, holds_last=True),
    )


def _improvement(final: Floats, strata: Integers, first: Floats) -> Estimate:
    """Both groups are resampled, each within itself.

    Few runs get no interval: where all of 3 end above all of 3 others, the bootstrap would call that certain.
    """
    count = len(final)
    if min(count, len(first)) < _FEW_RUNS:
        return Estimate(float(probability_of_improvement(final, first)), np.nan, np.nan)
    together = np.concatenate([strata, np.full(len(first), strata.max() + 1)])
    return estimate(
        lambda scores: probability_of_improvement(scores[..., :count], scores[..., count:]),
        np.concatenate([final, first]),
        together,
    )


def _finals(runs: Iterable[RunScore]) -> Floats:
    return np.array([score.final for score in runs], np.float64)


def _median(values: Iterable[float | None]) -> float:
    """Returns the median, in which runs that never reached the threshold come last."""
    return median(np.inf if value is None else float(value) for value in values)


def _missing(
    runs: Iterable[RunRecord], curves: Mapping[RunRecord, Curve], behavior: str, metric: str
) -> list[str]:
    missing = [f"'{run.name}'" for run in runs if run not in curves]
    return [f"{behavior}: {', '.join(missing)} left out, without any value of {metric}."] if missing else []


def _unequal_lengths(behavior: str, curves: Mapping[RunRecord, Curve]) -> list[str]:
    last = [int(curve.steps[-1]) for curve in curves.values()]
    if max(last) <= 1.02 * min(last):
        return []
    return [
        f"{behavior}: the runs end after {min(last):,} to {max(last):,} steps. Final scores are of each run's own end; "
        f"--until {min(last)} compares all at equal steps."
    ]


def pairs_above(improvement: float, score: GroupScore, first: GroupScore) -> str:
    """Counts the pairs of runs in which the one of the group ends above that of the first: ``7.5 of 9 pairs``."""
    pairs = len(score.runs) * len(first.runs)
    if pairs > 1 and improvement in {0.0, 1.0}:
        return f"{'all' if improvement else 'none of'} {pairs} pairs"
    return f"{improvement * pairs:.3g} of {pairs} pair{'s' if pairs > 1 else ''}"


def _few_pairs(behavior: str, scores: Sequence[GroupScore]) -> list[str]:
    first, *others = scores
    return [
        f"{behavior}: {score.group} ends above {first.group} in {pairs_above(score.improvement.value, score, first)}; "
        f"{len(score.runs)} + {len(first.runs)} runs are too few for an interval of P(above)."
        for score in others
        if score.improvement is not None and np.isnan(score.improvement.low)
    ]


def _about_seeds(groups: Sequence[RunGroup]) -> list[str]:
    notes = []
    few = [group.name for group in groups if 1 < len(group.runs) < _FEW_RUNS]
    alone = [group.name for group in groups if len(group.runs) == 1]
    if few:
        notes.append(
            f"Fewer than {_FEW_RUNS} runs in {', '.join(few)}: such intervals are rough, and often too narrow."
        )
    if alone:
        notes.append(f"A single run in {', '.join(alone)}: no interval.")
    for group in groups:
        seeds = [
            (method, run.seed)
            for method, run in zip(group.strata, group.runs, strict=True)
            if run.seed is not None
        ]
        if len(set(seeds)) < len(seeds):
            notes.append(f"{group.name}: two runs have one seed, and are no independent samples.")
    return notes
