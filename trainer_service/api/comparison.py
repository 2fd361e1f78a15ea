"""Runs beside each other, and a page on one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from trainer_service.analysis.grouping import GroupBy
from trainer_service.errors import UserError
from trainer_service.runs.layout import RESULTS, RunLayout


def compare(
    *runs: str | os.PathLike[str],
    group_by: GroupBy = "config",
    metric: str | None = None,
    behavior: str | None = None,
    threshold: float | None = None,
    until: int | None = None,
    plot: str | os.PathLike[str] | None = None,
    title: str = "",
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
        plot: a .png, .svg or .pdf file for the curves; needs the extra ``plot``.
        title: of the picture.

    Returns:
        What ``compare --json`` prints; docs/comparing.md says what its numbers are.

    Raises:
        UserError: there is no such run, the runs have nothing in common, or an argument makes no sense.
    """
    from trainer_service.analysis.comparison import compare as compare_groups
    from trainer_service.analysis.comparison_text import to_json
    from trainer_service.analysis.figure import draw, require_drawable
    from trainer_service.analysis.grouping import group_runs
    from trainer_service.analysis.run_record import find_runs, read_run

    if not runs:
        raise UserError("compare: expected at least one run, got none")
    if group_by not in get_args(GroupBy):
        raise UserError(f"group_by: expected one of {', '.join(get_args(GroupBy))}, got {group_by!r}")
    picture = None if plot is None else Path(plot)
    if picture is not None:
        require_drawable(picture)
    found = map(read_run, find_runs([os.fspath(run) for run in runs], RESULTS))
    comparison = compare_groups(
        group_runs([*found], group_by), metric=metric, behavior=behavior, threshold=threshold, until=until
    )
    if picture is not None:
        draw(comparison, picture, title=title)
    return to_json(comparison)


def report(run: str | os.PathLike[str], to: str | os.PathLike[str] | None = None) -> Path:
    """Writes a page on a run that can be mailed, as ``mlagents-style report`` does.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training. It may still go on.
        to: the file; None is ``report.html`` in the run's folder.

    Returns:
        The file.

    Raises:
        UserError: there is no such run, or the file cannot be written.
    """
    from trainer_service.analysis.report import require_output, write_report
    from trainer_service.analysis.run_record import find_run, read_run

    path = find_run(os.fspath(run), RESULTS)
    output = RunLayout(path).report if to is None else Path(to)
    require_output(output)
    write_report(read_run(path), output)
    return output
