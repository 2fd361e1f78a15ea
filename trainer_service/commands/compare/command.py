"""The command ``compare``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console as PlainConsole
from rich.console import RenderableType

from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.flags import RESULTS, ResultsDir
from trainer_service.commands.common.output import CommandResult
from trainer_service.commands.common.run_record import CurveAxis
from trainer_service.commands.compare.compare import compared, compared_over_tasks
from trainer_service.commands.compare.comparison_text import tables, task_tables, tasks_to_json, to_json
from trainer_service.commands.compare.grouping import GroupBy
from trainer_service.errors import UserError
from trainer_service.running.metrics.console import Console

_WIDTH_OF_A_FILE = 200
"""Columns of tables that no terminal shows."""


def compare_runs(
    runs: Annotated[Sequence[str], Flag("a run id, or the folder of a run", "RUN")],
    *,
    metric: Annotated[str | None, Flag(
        "a key of metrics.jsonl or a tag of TensorBoard (default mean_group_return where all runs have groups, else "
        "mean_return; evaluation/mean_return: of the evaluations while training)", "NAME")] = None,
    behavior: Annotated[str | None, Flag("which (default: all that the runs have in common)", "NAME")] = None,
    group_by: Annotated[GroupBy, Flag(
        "config: equal configurations but for the seed; name: equal run ids but for the number at the end; run: each "
        "alone (default config)")] = "config",
    threshold: Annotated[float | None, Flag("when did they reach this value?", "X")] = None,
    until: Annotated[int | None, Flag("count nothing after so many steps", "STEPS")] = None,
    x: Annotated[CurveAxis, Flag("env_steps: over environment steps, as --until then is (default steps)")] = "steps",
    plot: Annotated[Path | None, Flag("draw the curves: a .png, .svg or .pdf file", "FILE")] = None,
    title: Annotated[str, Flag("of the picture", "TEXT")] = "",
    to: Annotated[Path | None, Flag(
        "write the table: a .csv, .md or .tex file; with --tasks also .json for marl-eval or .npz for rliable", "FILE"
        )] = None,
    tasks: Annotated[bool, Flag("compare methods over several tasks, by normalized final scores")] = False,
    methods: Annotated[Sequence[str], Flag(
        "with --tasks: the run ids of a method; can be repeated (default: each trainer type is a method)",
        "NAME=PATTERN", names="--method")] = (),
    bounds: Annotated[Sequence[str], Flag(
        "with --tasks: the scores of a task that become 0 and 1; can be repeated (default: lowest and highest)",
        "TASK=LOW,HIGH")] = (),
    results_dir: ResultsDir = RESULTS,
) -> CommandResult:  # fmt: skip
    """Compares what runs of this trainer and of ML-Agents learned, finished or not. Runs that differ in their seed only
    are one group: its scores are interquartile means with 95 % bootstrap intervals.
    """
    if tasks:
        others = x if x != "steps" else None
        _refuse("not allowed with --tasks", behavior=behavior, threshold=threshold, plot=plot, x=others)
        named = dict(_pair("--method", text, "NAME=PATTERN") for text in methods)
        ends = {
            task: _bounds(text)
            for task, text in (_pair("--bounds", each, "TASK=LOW,HIGH") for each in bounds)
        }
        with Console(tty=False, stream=sys.stderr):
            over_tasks = compared_over_tasks(
                runs, results_dir, to=to, methods=named or None, bounds=ends, metric=metric, until=until
            )
        return CommandResult(tasks_to_json(over_tasks), _lines(task_tables(over_tasks), {"\nWritten to": to}))
    _refuse("expected --tasks beside it", method=methods or None, bounds=bounds or None)
    with Console(tty=False, stream=sys.stderr):
        comparison = compared(
            runs, results_dir, group_by, plot=plot, title=title, to=to, metric=metric, behavior=behavior,
            threshold=threshold, until=until, x=x,
        )  # fmt: skip
    files = {"\nCurves in": plot, "\nTable in": to}
    return CommandResult(to_json(comparison), _lines(tables(comparison, group_by), files))


def _refuse(why: str, **flags: object) -> None:
    for name, given in flags.items():
        if given is not None:
            raise UserError(f"--{name}: {why}")


def _pair(flag: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise UserError(f"{flag}: expected {form}, got '{text}'")
    return name, value


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UserError(f"--bounds: expected two numbers LOW,HIGH, got '{text}'") from None
    return low, high


def _lines(parts: Iterable[RenderableType], files: Mapping[str, Path | None]) -> Iterator[str]:
    """Prints tables, and yields lines on the files that were written."""
    console = PlainConsole(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    for part in parts:
        console.print(part)
    yield from (f"{what} {path}" for what, path in files.items() if path is not None)
