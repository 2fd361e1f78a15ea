"""Comparisons in files: tables as CSV, Markdown and LaTeX, scores for marl-eval and rliable."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer_service.commands.common.curves import shared_range
from trainer_service.commands.compare.comparison import Comparison, GroupScore
from trainer_service.commands.compare.comparison_text import in_interval
from trainer_service.commands.compare.tasks import TaskComparison
from trainer_service.errors import UserError
from trainer_service.running.runs.files import write_atomic, write_atomic_by

_POINTS = 20
"""Points of a run's curve in marl-eval's file: it expects equally many of every run."""
_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}

Rows = Sequence[Sequence[Any]]
"""A table whose first row has the headers."""


def require_format(path: Path, *, over_tasks: bool) -> None:
    """Raises UserError unless a comparison can be written to a file of this name."""
    known = [*_TABLES, _LATEX, *(_SCORES if over_tasks else ())]
    if path.suffix.lower() in known:
        return
    hint = "; .json and .npz need --tasks" if path.suffix.lower() in _SCORES else ""
    raise UserError(f"--to {path}: expected a file that ends with {', '.join(known)}{hint}")


def write_comparison(comparison: Comparison | TaskComparison, path: Path) -> None:
    """Writes a table, or with several tasks also scores: .json for marl-eval, .npz for rliable. Raises SaveError."""
    suffix = path.suffix.lower()
    if isinstance(comparison, TaskComparison):
        if suffix == ".npz":
            matrices = score_matrices(comparison)
            write_atomic_by(path, lambda file: np.savez(file, **matrices))  # type: ignore[arg-type]
            return
        if suffix == ".json":
            write_atomic(path, json.dumps(marl_eval(comparison), indent=1) + "\n")
            return
        rows = _rows_over_tasks(comparison)
    else:
        rows = _rows(comparison)
    write_atomic(path, _latex(comparison) if suffix == _LATEX else _TABLES[suffix](rows))


def score_matrices(comparison: TaskComparison) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """The normalized scores of each method, as rliable takes them. Shape [runs, tasks].

    Raises:
        UserError: a method has more runs of one task than of another.
    """
    matrices = {}
    for method in comparison.methods:
        counts = {task: len(runs) for task, runs in method.runs.items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{task}: {count}" for task, count in counts.items())
            raise UserError(
                f"method '{method.method}': expected equally many runs of every task, got {listed}"
            )
        columns = [[run.score for run in runs] for runs in method.runs.values()]
        matrices[method.method] = np.array(columns, np.float64).T
    return matrices


def marl_eval(comparison: TaskComparison) -> dict[str, Any]:
    """The curves and final scores as marl-eval's raw data, not normalized: environment, task, algorithm, run, step."""
    metric = comparison.metric.removeprefix("mean_")
    tasks: dict[str, Any] = {}
    for task in comparison.bounds:
        runs = [run for method in comparison.methods for run in method.runs[task]]
        first, last = shared_range([run.curve.steps for run in runs])
        steps = np.linspace(first, max(first, last), _POINTS).round().astype(np.int64)
        tasks[task] = {
            method.method: {
                f"run_{number}": {
                    **{
                        f"step_{index}": {"step_count": int(step), metric: [float(value)]}
                        for index, (step, value) in enumerate(
                            zip(steps, np.interp(steps, run.curve.steps, run.curve.values), strict=True)
                        )
                    },
                    "absolute_metrics": {metric: [run.curve.final]},
                }
                for number, run in enumerate(method.runs[task])
            }
            for method in comparison.methods
        }
    return {"all": tasks}


def _rows(comparison: Comparison) -> Rows:
    headers = ["behavior", "metric", "group", "runs", "steps", "final", "final_low", "final_high"]
    headers += ["area", "area_low", "area_high"]
    has_threshold = comparison.threshold is not None
    headers += ["reached", "steps_to_threshold", "seconds_to_threshold"] if has_threshold else []
    headers += ["p_above_first", "p_low", "p_high"]
    rows: list[Sequence[Any]] = [headers]
    for behavior, scores in comparison.behaviors.items():
        for score in scores:
            last = max(int(run.curve.steps[-1]) for run in score.runs)
            row = [behavior, comparison.metrics[behavior], score.group, len(score.runs), last]
            row += [*score.final, *score.area]
            if has_threshold:
                row += [score.num_reached, score.steps_to_threshold, score.seconds_to_threshold]
            rows.append([*row, *(score.improvement or [None] * 3)])
    return rows


def _rows_over_tasks(comparison: TaskComparison) -> Rows:
    tasks = [*comparison.bounds]
    headers = ["method", "runs", "iqm", "iqm_low", "iqm_high", "p_above_first", "p_low", "p_high"]
    rows: list[Sequence[Any]] = [[*headers, *tasks]]
    for method in comparison.methods:
        means = [float(np.mean([run.score for run in method.runs[task]])) for task in tasks]
        count = sum(map(len, method.runs.values()))
        rows.append([method.method, count, *method.iqm, *(method.improvement or [None] * 3), *means])
    return rows


def _csv(rows: Rows) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([[_exact(cell) for cell in row] for row in rows])
    return file.getvalue()


def _markdown(rows: Rows) -> str:
    lines = [[_short(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex(comparison: Comparison | TaskComparison) -> str:
    """A table for a paper with booktabs' rules: a cell is an estimate with its interval, the best is bold."""
    if isinstance(comparison, TaskComparison):
        parts = [_printed_methods(comparison)]
    else:
        parts = [_printed_groups(name, scores, comparison) for name, scores in comparison.behaviors.items()]
    head = parts[0][0]
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", _latex_row(head)]
    for _, body, best in parts:
        lines += [r"\midrule", *(_latex_row(row, bold=number == best) for number, row in enumerate(body))]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _printed_groups(behavior: str, scores: Sequence[GroupScore], comparison: Comparison) -> _Printed:
    head = ["", "Runs", "Final", "Area"]
    if comparison.threshold is not None:
        head += [f"Reached {comparison.threshold:g}"]
    body = []
    for score in scores:
        named = score.group if len(comparison.behaviors) == 1 else f"{behavior}: {score.group}"
        row = [named, str(len(score.runs)), in_interval(score.final), in_interval(score.area)]
        body.append([*row, f"{score.num_reached} of {len(score.runs)}"] if len(head) > len(row) else row)
    return head, body, _best([score.final.value for score in scores])


def _printed_methods(comparison: TaskComparison) -> _Printed:
    body = []
    for method in comparison.methods:
        means = [np.mean([run.score for run in runs]) for runs in method.runs.values()]
        row = [method.method, str(sum(map(len, method.runs.values()))), in_interval(method.iqm)]
        body.append([*row, *(f"{mean:.3f}" for mean in means)])
    best = _best([method.iqm.value for method in comparison.methods])
    return ["", "Runs", "IQM", *comparison.bounds], body, best


def _best(values: Sequence[float]) -> int | None:
    """The position of the largest value; None of one alone."""
    return int(np.nanargmax(values)) if len(values) > 1 and not np.isnan(values).all() else None


def _latex_row(cells: Sequence[str], *, bold: bool = False) -> str:
    """A row whose third cell, the score, may be bold."""
    texts = [_escaped(cell) for cell in cells]
    if bold:
        texts[2] = rf"\textbf{{{texts[2]}}}"
    return " & ".join(texts) + r" \\"


_Printed = tuple[Sequence[str], Sequence[Sequence[str]], int | None]
"""Headers, rows of cells, and the number of the best row."""

_LATEX = ".tex"
_TABLES: Mapping[str, Callable[[Rows], str]] = {".csv": _csv, ".md": _markdown}
_SCORES = (".json", ".npz")


def _exact(cell: Any) -> str:
    missing = cell is None or (isinstance(cell, float) and math.isnan(cell))
    return "" if missing else str(cell)


def _short(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) and not math.isnan(cell) else _exact(cell)


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)
