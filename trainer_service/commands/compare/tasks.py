"""Methods over several tasks: normalized scores and their aggregates, as Agarwal et al. (2021) define them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainer_service.commands.common.aggregates import (
    Estimate,
    estimate,
    interquartile_mean,
    percentile_interval,
    performance_profile,
    probability_of_improvement,
    resampled,
)
from trainer_service.commands.common.curves import Curve
from trainer_service.commands.common.run_record import RunRecord
from trainer_service.commands.compare.comparison import default_metric
from trainer_service.errors import UserError
from unity_bridge.arrays import Floats
from unity_bridge.names import did_you_mean

THRESHOLDS = np.round(np.linspace(0.0, 1.0, 101), 2)
"""Normalized scores at which performance profiles are computed."""
_RESAMPLES = 2_000
"""Bootstrap samples of performance profiles."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskRun:
    """One run of a method on a task."""

    run: RunRecord
    curve: Curve
    score: float
    """The normalized final score."""


@dataclass(frozen=True, slots=True, eq=False)
class MethodScore:
    """The aggregates of one method over all tasks."""

    method: str
    runs: Mapping[str, tuple[TaskRun, ...]]
    """By task, none empty."""

    iqm: Estimate
    """Interquartile mean of the normalized scores of all runs on all tasks."""

    profile: Floats
    """Share of runs above each of ``THRESHOLDS``, with the ends of its interval. Shape [3, T]."""

    improvement: Estimate | None
    """The probability that a run ends above one of the first method, averaged over tasks; None for that itself."""


@dataclass(frozen=True, slots=True, eq=False)
class TaskComparison:
    """The scores of methods on several tasks."""

    metric: str
    bounds: Mapping[str, tuple[float, float]]
    """The final scores that became 0 and 1, by task."""

    methods: tuple[MethodScore, ...]
    notes: tuple[str, ...]


def compare_over_tasks(
    runs: Sequence[RunRecord],
    *,
    methods: Mapping[str, str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    metric: str | None = None,
    until: int | None = None,
) -> TaskComparison:
    """Compares methods over several tasks. A task is a behavior; where its name comes with several environments, both.

    Args:
        runs: of all methods on all tasks.
        methods: patterns of run ids by method; None makes each type of trainer a method.
        bounds: the final scores that become 0 and 1, by task; for other tasks the lowest and the highest of all runs.
        metric: a key of metrics.jsonl; None is the return of groups where all runs have one, else the return.
        until: steps after which nothing counts.

    Raises:
        UserError: there is nothing to compare, a method lacks a task, or bounds make no sense.
    """
    names = [each for run in runs for each in run.curves]
    if not names:
        raise UserError("no summary was written yet; expected at least one in metrics.jsonl of a run")
    key = metric or default_metric([run.curves[name] for run in runs for name in run.curves])
    curves = _curves_by_task(runs, key, until)
    limits = {task: _bounds(task, own, bounds or {}) for task, own in curves.items()}
    for task in (bounds or {}).keys() - curves.keys():
        raise UserError(
            f"bounds of task '{task}': no such task{did_you_mean(task, curves)}; there are: {', '.join(curves)}"
        )
    scored: dict[str, dict[str, list[TaskRun]]] = {}
    for task, own in curves.items():
        low, high = limits[task]
        for run, curve in own.items():
            scored.setdefault(_method_of(run, task, methods), {}).setdefault(task, []).append(
                TaskRun(run, curve, (curve.final - low) / (high - low))
            )
    _require_all_tasks(scored, curves)
    found: list[MethodScore] = []
    for method, of_tasks in scored.items():
        ordered = {task: tuple(of_tasks[task]) for task in curves}
        found.append(_method_score(method, ordered, found[0] if found else None))
    return TaskComparison(key, limits, tuple(found), tuple(_notes(found, bounds or {}, curves)))


def _curves_by_task(
    runs: Sequence[RunRecord], metric: str, until: int | None
) -> dict[str, dict[RunRecord, Curve]]:
    """The curves of the metric by task and run, tasks by name."""
    environments: dict[str, set[str]] = {}
    for run in runs:
        for behavior in run.curves:
            environments.setdefault(behavior, set()).add(_environment(run))
    curves: dict[str, dict[RunRecord, Curve]] = {}
    for run in runs:
        for behavior, metrics in run.curves.items():
            task = behavior if len(environments[behavior]) == 1 else f"{_environment(run)} {behavior}"
            curve = metrics.get(metric)
            cut = curve if curve is None or until is None else curve.until(until)
            if cut is not None:
                curves.setdefault(task, {})[run] = cut
    if not curves:
        known = sorted({name for run in runs for metrics in run.curves.values() for name in metrics})
        raise UserError(f"no run has a value of '{metric}'{did_you_mean(metric, known)}")
    return dict(sorted(curves.items()))


def _environment(run: RunRecord) -> str:
    section = (run.options or {}).get("env_settings")
    return str(section.get("env_path")) if isinstance(section, dict) else "None"


def _method_of(run: RunRecord, task: str, methods: Mapping[str, str] | None) -> str:
    if methods is None:
        return str(run.setting(task.rpartition(" ")[2], "trainer_type") or run.trainer)
    found = [name for name, pattern in methods.items() if fnmatch.fnmatchcase(run.name, pattern)]
    if len(found) != 1:
        patterns = ", ".join(f"{name}={pattern}" for name, pattern in methods.items())
        raise UserError(
            f"run '{run.name}' belongs to {' and '.join(found) or 'no method'}; expected one of {patterns}"
        )
    return found[0]


def _bounds(
    task: str, curves: Mapping[RunRecord, Curve], given: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    finals = [curve.final for curve in curves.values()]
    low, high = given.get(task, (min(finals), max(finals)))
    if not low < high:
        raise UserError(
            f"bounds of task '{task}': expected a lower and a higher score, got {low:g} and {high:g}"
            + ("" if task in given else ", the lowest and the highest of its runs; give bounds of the task")
        )
    return low, high


def _require_all_tasks(
    scored: Mapping[str, Mapping[str, Sequence[TaskRun]]], tasks: Mapping[str, object]
) -> None:
    for method, own in scored.items():
        if missing := [task for task in tasks if task not in own]:
            raise UserError(
                f"method '{method}' has no run of {', '.join(missing)}; expected runs of every task: {', '.join(tasks)}"
            )


def _method_score(
    method: str, runs: Mapping[str, tuple[TaskRun, ...]], first: MethodScore | None
) -> MethodScore:
    scores, strata = _flat(runs)
    drawn = scores[resampled(strata, _RESAMPLES)]
    profile = np.full((3, len(THRESHOLDS)), np.nan)
    profile[0] = performance_profile(scores, THRESHOLDS)
    if len(np.unique(strata)) < len(strata):
        for column, threshold in enumerate(THRESHOLDS):
            profile[1:, column] = percentile_interval(np.mean(drawn > threshold, axis=-1))
    return MethodScore(
        method,
        runs,
        estimate(interquartile_mean, scores, strata),
        profile,
        None if first is None else _improvement(runs, first.runs),
    )


def _flat(
    runs: Mapping[str, Sequence[TaskRun]],
) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """The scores of all runs, and the index of the task of each, within which they are resampled."""
    scores = [run.score for own in runs.values() for run in own]
    strata = [index for index, own in enumerate(runs.values()) for _ in own]
    return np.array(scores, np.float64), np.array(strata, np.int64)


def _improvement(runs: Mapping[str, Sequence[TaskRun]], others: Mapping[str, Sequence[TaskRun]]) -> Estimate:
    own, own_tasks = _flat(runs)
    other, other_tasks = _flat(others)
    count, tasks = len(own), range(len(runs))

    def averaged(scores: Floats) -> Floats:
        return np.asarray(
            np.mean(
                [
                    probability_of_improvement(
                        scores[..., :count][..., own_tasks == task],
                        scores[..., count:][..., other_tasks == task],
                    )
                    for task in tasks
                ],
                axis=0,
            )
        )

    together = np.concatenate([own_tasks, other_tasks + len(runs)])
    return estimate(averaged, np.concatenate([own, other]), together)


def _notes(
    methods: Sequence[MethodScore],
    given: Mapping[str, tuple[float, float]],
    tasks: Mapping[str, object],
) -> list[str]:
    notes = []
    if unset := [task for task in tasks if task not in given]:
        notes.append(
            f"Without bounds 0 and 1 are the lowest and the highest final score of these runs: {', '.join(unset)}."
        )
    fewest = min(len(own) for method in methods for own in method.runs.values())
    if fewest < 5:
        notes.append(
            f"Some tasks have {fewest} run(s) of a method: such intervals are rough, and often too narrow."
        )
    return notes
