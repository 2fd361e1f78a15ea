"""A comparison as tables for a terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from trainer_service.commands.common.aggregates import CONFIDENCE, Estimate
from trainer_service.commands.common.curves import Band
from trainer_service.commands.compare.comparison import Comparison, GroupScore, RunScore, pairs_above
from trainer_service.commands.compare.grouping import GroupBy, differing_settings
from trainer_service.commands.compare.tasks import THRESHOLDS, TaskComparison
from trainer_service.running.metrics.jsonl import finite_or_none
from unity_bridge.untrusted_text import harmless

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_SETTINGS = 12
"""Limit of the differing settings in a table; --json has all."""

_SHOWN_THRESHOLDS = (25, 50, 75)
"""Positions among ``THRESHOLDS`` that a table shows of a performance profile; --json has all."""

_GROUPED: Mapping[GroupBy, str] = {
    "config": "Runs are grouped by configuration, ignoring seeds (change: --group-by).",
    "name": "Runs whose ids are alike up to a number at the end are one group.",
    "run": "Every run is a group.",
}


def tables(comparison: Comparison, by: GroupBy) -> Iterator[RenderableType]:
    """A table for each behavior, what distinguishes the groups, and notes."""
    yield Text(_GROUPED[by])
    for behavior, scores in comparison.behaviors.items():
        yield Text()
        yield _text(f"{behavior}: {comparison.metrics[behavior]}")
        yield _table(scores, comparison)
    if settings := differing_settings(comparison.groups):
        yield Text()
        yield _settings_table(comparison, settings)
        if len(settings) > _MOST_SETTINGS:
            yield Text(f"… and {len(settings) - _MOST_SETTINGS} settings more, see --json")
    yield Text()
    yield Text(
        f"Final: mean of the last tenth of a run's steps. Area: mean height of the curve over the steps that all runs "
        f"have. Of groups the interquartile mean with its {CONFIDENCE:.0%} interval (stratified bootstrap)."
    )
    yield from (Text(harmless(note)) for note in comparison.notes)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The object that ``compare --json`` prints. Missing figures are null: an interval of one run, for instance."""
    return {
        "confidence": CONFIDENCE,
        "threshold": comparison.threshold,
        "x": comparison.x,
        "groups": [
            {
                "name": group.name,
                "runs": [
                    {"run_id": run.name, "path": str(run.path), "trainer": run.trainer, "seed": run.seed}
                    for run in group.runs
                ],
            }
            for group in comparison.groups
        ],
        "settings": {path: list(values) for path, values in differing_settings(comparison.groups).items()},
        "behaviors": {
            name: {
                "metric": comparison.metrics[name],
                "groups": [_group_to_json(score, comparison) for score in scores],
            }
            for name, scores in comparison.behaviors.items()
        },
        "notes": list(comparison.notes),
    }


def task_tables(comparison: TaskComparison) -> Iterator[RenderableType]:
    """A table of methods over several tasks, their performance profiles, and notes."""
    first, *others = comparison.methods
    yield _text(f"{len(comparison.bounds)} tasks, normalized final {comparison.metric}:")
    for task, (low, high) in comparison.bounds.items():
        yield _text(f"  {task}: 0 is {low:.6g}, 1 is {high:.6g}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Method", no_wrap=True)
    above = [f"Above {THRESHOLDS[index]:g}" for index in _SHOWN_THRESHOLDS]
    for header in ("Runs", "IQM", *([f"P(above {first.method})"] if others else []), *above):
        table.add_column(_text(header), justify="right")
    for method in comparison.methods:
        improvement = "" if method.improvement is None else in_interval(method.improvement)
        table.add_row(
            _text(method.method),
            str(sum(map(len, method.runs.values()))),
            in_interval(method.iqm),
            *([improvement] if others else []),
            *(f"{method.profile[0, index]:.0%}" for index in _SHOWN_THRESHOLDS),
        )
    yield Text()
    yield table
    yield Text()
    yield Text(
        "IQM: interquartile mean of all runs on all tasks. P: probability that a run ends above one of the first "
        f"method, averaged over tasks. Intervals cover {CONFIDENCE:.0%} (bootstrap, stratified by task). Above X: "
        "share of runs with a normalized score above X."
    )
    yield from (Text(harmless(note)) for note in comparison.notes)


def tasks_to_json(comparison: TaskComparison) -> dict[str, Any]:
    """The object that ``compare --tasks --json`` prints."""
    return {
        "confidence": CONFIDENCE,
        "metric": comparison.metric,
        "tasks": {task: {"low": low, "high": high} for task, (low, high) in comparison.bounds.items()},
        "methods": [
            {
                "method": method.method,
                "iqm": _estimate_to_json(method.iqm),
                "probability_of_improvement": method.improvement and _value_to_json(method.improvement),
                "profile": {
                    "thresholds": THRESHOLDS.tolist(),
                    **{
                        name: [finite_or_none(value) for value in row.tolist()]
                        for name, row in zip(("share", "low", "high"), method.profile, strict=True)
                    },
                },
                "tasks": {
                    task: [
                        {"run_id": each.run.name, "final": each.curve.final, "score": each.score}
                        for each in runs
                    ]
                    for task, runs in method.runs.items()
                },
            }
            for method in comparison.methods
        ],
        "notes": list(comparison.notes),
    }


def _value_to_json(estimate: Estimate) -> dict[str, float | None]:
    return {name: finite_or_none(value) for name, value in estimate._asdict().items()}


def _table(scores: tuple[GroupScore, ...], comparison: Comparison) -> Table:
    several, threshold = len(scores) > 1, comparison.threshold
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Group", no_wrap=True)
    headers = ["Runs", "Steps" if comparison.x == "steps" else "Env steps", "Final", "Area"]
    if threshold is not None:
        headers += ["Reached", f"Steps to {threshold:g}", f"Seconds to {threshold:g}"]
    if several:
        headers.append(f"P(above {scores[0].group})")
    for header in headers:
        table.add_column(_text(header), justify="right")
    for score in scores:
        table.add_row(*_group_row(score, scores, threshold))
        for run in score.runs if len(score.runs) > 1 else ():
            table.add_row(*(Text(cell, style="dim") for cell in _run_row(run, threshold)))
    return table


def _group_row(score: GroupScore, scores: Sequence[GroupScore], threshold: float | None) -> list[Any]:
    last = sorted({int(run.curve.steps[-1]) for run in score.runs})
    steps = f"{last[0]:,}" if len(last) == 1 else f"{last[0]:,}–{last[-1]:,}"
    row = [_text(score.group), str(len(score.runs)), steps, in_interval(score.final), in_interval(score.area)]
    if threshold is not None:
        row += [
            f"{score.num_reached} of {len(score.runs)}",
            *_reached(score.steps_to_threshold, score.seconds_to_threshold),
        ]
    if len(scores) > 1:
        row.append(_improvement(score, scores[0]))
    return row


def _improvement(score: GroupScore, first: GroupScore) -> str:
    """The probability with its interval, or a count of pairs where there is none, or chance shows in no resample."""
    if score.improvement is None:
        return ""
    value, low, high = score.improvement
    return in_interval(score.improvement) if low < high else pairs_above(value, score, first)


def _run_row(score: RunScore, threshold: float | None) -> list[str]:
    seed = "" if score.run.seed is None else f"seed {score.run.seed}"
    steps = f"{int(score.curve.steps[-1]):,}"
    row = [harmless(f"  {score.run.name}"), seed, steps, _number(score.final), _number(score.area)]
    if threshold is None:
        return row
    step, seconds = score.reached or (math.inf, math.inf)
    return [*row, "", *_reached(step, seconds)]


def _settings_table(comparison: Comparison, settings: Mapping[str, tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Settings that differ")
    for group in comparison.groups:
        table.add_column(_text(group.name))
    for path, values in list(settings.items())[:_MOST_SETTINGS]:
        table.add_row(_text(path), *map(_text, values))
    return table


def _text(text: str) -> Any:
    """Text from outside as it is: brackets in it are no markup."""
    return Text(harmless(text))


def in_interval(estimate: Estimate) -> str:
    """An estimate as printed: 0.374 [0.351, 0.396], or its value alone where it has no interval."""
    scale = max(map(abs, filter(math.isfinite, estimate)), default=0.0)
    if math.isnan(estimate.low):
        return _number(estimate.value)
    low, high = _number(estimate.low, scale), _number(estimate.high, scale)
    return f"{_number(estimate.value, scale)} [{low}, {high}]"


def _number(value: float, scale: float | None = None) -> str:
    """Four digits, but no more than three behind the point: 493.3, 0.933. Numbers of one ``scale`` get one form."""
    if math.isnan(value):
        return "–"
    scale = abs(value) if scale is None else scale
    if 0.0 < scale < 0.01 or scale >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.{max(3 - int(math.log10(max(scale, 1.0))), 0)}f}"


def _reached(steps: float, seconds: float) -> list[str]:
    return [
        "never" if math.isinf(value) else f"{value:,.{digits}f}"
        for value, digits in ((steps, 0), (seconds, 1))
    ]


def _group_to_json(score: GroupScore, comparison: Comparison) -> dict[str, Any]:
    return {
        "group": score.group,
        "final": _estimate_to_json(score.final),
        "area": _estimate_to_json(score.area),
        "reached": None if comparison.threshold is None else score.num_reached,
        "steps_to_threshold": finite_or_none(score.steps_to_threshold),
        "seconds_to_threshold": finite_or_none(score.seconds_to_threshold),
        "probability_of_improvement": score.improvement and _estimate_to_json(score.improvement),
        "over_steps": _band_to_json(score.over_steps, "steps"),
        "over_seconds": _band_to_json(score.over_seconds, "seconds"),
        "runs": [_run_to_json(run) for run in score.runs],
    }


def _run_to_json(score: RunScore) -> dict[str, Any]:
    return {
        "run_id": score.run.name,
        "seed": score.run.seed,
        "final": score.final,
        "area": finite_or_none(score.area),
        "steps_to_threshold": score.reached and score.reached.step,
        "seconds_to_threshold": score.reached and round(score.reached.seconds, 3),
        "steps": score.curve.steps.tolist(),
        "seconds": [round(second, 3) for second in score.curve.seconds.tolist()],
        "values": score.curve.values.tolist(),
    }


def _estimate_to_json(estimate: Estimate) -> dict[str, float | None]:
    return {
        "iqm" if name == "value" else name: finite_or_none(value)
        for name, value in estimate._asdict().items()
    }


def _band_to_json(averaged: Band, x: str) -> dict[str, list[float | None]]:
    columns = {x: averaged.x, "iqm": averaged.iqm, "low": averaged.low, "high": averaged.high}
    return {name: [finite_or_none(value) for value in column.tolist()] for name, column in columns.items()}
