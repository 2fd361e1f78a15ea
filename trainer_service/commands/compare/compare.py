"""Runs beside each other, and a page on one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from trainer_service.commands.common.run_record import CurveAxis, find_runs, read_run
from trainer_service.commands.compare.comparison import Comparison
from trainer_service.commands.compare.comparison import compare as compare_groups
from trainer_service.commands.compare.comparison_text import tasks_to_json, to_json
from trainer_service.commands.compare.exports import require_format, write_comparison
from trainer_service.commands.compare.figure import draw, require_drawable
from trainer_service.commands.compare.grouping import GroupBy, group_runs
from trainer_service.commands.compare.tasks import TaskComparison, compare_over_tasks
from trainer_service.errors import UserError
from trainer_service.running.runs.layout import RESULTS


def compare(
    *runs: str | os.PathLike[str],
    group_by: GroupBy = "config",
    metric: str | None = None,
    behavior: str | None = None,
    threshold: float | None = None,
    until: int | None = None,
    x: CurveAxis = "steps",
    plot: str | os.PathLike[str] | None = None,
    title: str = "",
    to: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Compares what runs learned, as ``mlagents-style compare`` does: scores over seeds with their intervals.

    Args:
        runs: each its id, if it is in ``results``, a pattern of ids (``"walker-*"``), its folder, or the ``Outcome`` of
            its training. Runs of ML-Agents are read, too.
        group_by: ``"config"``, runs that differ in their seed only are a group; ``"name"``, those whose ids are alike
            but for the number at the end; ``"run"``, each alone.
        metric: a key of ``load_metrics`` or a tag of TensorBoard; None is the return.
        behavior: only this one; None is all that the runs have in common.
        threshold: when was it reached?
        until: nothing counts after so many steps.
        x: ``"env_steps"`` compares over environment steps, and counts ``until`` in them.
        plot: a .png, .svg or .pdf file for the curves; needs the extra ``plot``.
        title: of the picture.
        to: a .csv, .md or .tex file for the table of groups.

    Returns:
        What ``compare --json`` prints; docs/comparing.md says what its numbers are.

    Raises:
        UserError: there is no such run, the runs have nothing in common, or an argument makes no sense.
    """
    if not runs:
        raise UserError("compare: expected at least one run, got none")
    if group_by not in get_args(GroupBy):
        raise UserError(f"group_by: expected one of {', '.join(get_args(GroupBy))}, got {group_by!r}")
    if x not in get_args(CurveAxis):
        raise UserError(f"x: expected one of {', '.join(get_args(CurveAxis))}, got {x!r}")
    comparison = compared(
        [os.fspath(run) for run in runs], RESULTS, group_by, plot=_path(plot), title=title, to=_path(to),
        metric=metric, behavior=behavior, threshold=threshold, until=until, x=x,
    )  # fmt: skip
    return to_json(comparison)


def compared(
    runs: Sequence[str],
    results_dir: Path,
    group_by: GroupBy,
    *,
    plot: Path | None,
    title: str,
    to: Path | None,
    x: CurveAxis = "steps",
    **which: Any,
) -> Comparison:
    """The comparison of runs, in files too where they are named. which: arguments of ``comparison.compare``.

    Raises UserError as ``compare`` does.
    """
    if plot is not None:
        require_drawable(plot)
    if to is not None:
        require_format(to, over_tasks=False)
    found = [read_run(run, x) for run in find_runs(runs, results_dir)]
    comparison = replace(compare_groups(group_runs(found, group_by), **which), x=x)
    if plot is not None:
        draw(comparison, plot, title=title)
    if to is not None:
        write_comparison(comparison, to)
    return comparison


def compare_tasks(
    *runs: str | os.PathLike[str],
    methods: Mapping[str, str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    metric: str | None = None,
    until: int | None = None,
    to: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Compares methods over several tasks, as ``mlagents-style compare --tasks`` does.

    Args:
        runs: as for ``compare``: the runs of every method on every task.
        methods: a pattern of run ids for each method (``{"ours": "ours-*"}``); None makes each trainer type a method.
        bounds: the final scores that become 0 and 1, by task (behavior); for the other tasks the lowest and the highest
            final score of these runs.
        metric: as for ``compare``.
        until: nothing counts after so many steps.
        to: a .csv, .md or .tex file for the table; a .json file for marl-eval; an .npz file for rliable.

    Returns:
        What ``compare --tasks --json`` prints; docs/comparing.md says what its numbers are.

    Raises:
        UserError: there is no such run, a method lacks a task, or an argument makes no sense.
    """
    if not runs:
        raise UserError("compare_tasks: expected at least one run, got none")
    which = {"methods": methods, "bounds": bounds, "metric": metric, "until": until}
    return tasks_to_json(
        compared_over_tasks([os.fspath(run) for run in runs], RESULTS, to=_path(to), **which)
    )


def _path(given: str | os.PathLike[str] | None) -> Path | None:
    return None if given is None else Path(given)


def compared_over_tasks(
    runs: Sequence[str], results_dir: Path, *, to: Path | None, **which: Any
) -> TaskComparison:
    """The comparison over tasks, in a file too where it is named. which: arguments of ``compare_over_tasks``.

    Raises UserError as ``compare_tasks`` does.
    """
    if to is not None:
        require_format(to, over_tasks=True)
    comparison = compare_over_tasks([*map(read_run, find_runs(runs, results_dir))], **which)
    if to is not None:
        write_comparison(comparison, to)
    return comparison
