"""The command ``compare``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer_service.commands.common.output import say, say_json
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

_OF_COMPARISONS = ("plot", "title", "to", "metric", "behavior", "threshold", "until")
_WIDTH_OF_A_FILE = 200
"""Columns of tables that no terminal shows."""


def compare_runs(parsed: argparse.Namespace) -> int:
    """Prints the comparison of runs, and draws it where ``--plot`` asks for that. Returns the exit code."""
    from trainer_service.commands.compare.compare import compared
    from trainer_service.commands.compare.comparison_text import tables, to_json
    from trainer_service.running.metrics.console import Console

    if parsed.tasks:
        return _compare_tasks(parsed)
    for flag, given in (("--method", parsed.methods), ("--bounds", parsed.bounds)):
        if given:
            raise UserError(f"{flag}: expected --tasks beside it")
    with Console(tty=False, stream=sys.stderr):
        how = {name: getattr(parsed, name) for name in _OF_COMPARISONS}
        comparison = compared(parsed.runs, parsed.results_dir, parsed.group_by, **how)
    if parsed.json:
        say_json(to_json(comparison))
    else:
        _print([*tables(comparison, parsed.group_by)])
        if parsed.plot is not None:
            say(f"\nCurves in {parsed.plot}")
        if parsed.to is not None:
            say(f"\nTable in {parsed.to}")
    return 0


def _compare_tasks(parsed: argparse.Namespace) -> int:
    from trainer_service.commands.compare.compare import compared_over_tasks
    from trainer_service.commands.compare.comparison_text import task_tables, tasks_to_json
    from trainer_service.running.metrics.console import Console

    unused = {"--behavior": parsed.behavior, "--threshold": parsed.threshold, "--plot": parsed.plot}
    for flag, given in unused.items():
        if given is not None:
            raise UserError(f"{flag}: of no use with --tasks")
    methods = dict(_pair("--method", text, "NAME=PATTERN") for text in parsed.methods)
    bounds = {
        task: _bounds(text)
        for task, text in (_pair("--bounds", each, "TASK=LOW,HIGH") for each in parsed.bounds)
    }
    with Console(tty=False, stream=sys.stderr):
        comparison = compared_over_tasks(
            parsed.runs,
            parsed.results_dir,
            to=parsed.to,
            methods=methods or None,
            bounds=bounds,
            metric=parsed.metric,
            until=parsed.until,
        )
    if parsed.json:
        say_json(tasks_to_json(comparison))
    else:
        _print([*task_tables(comparison)])
        if parsed.to is not None:
            say(f"\nWritten to {parsed.to}")
    return 0


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


def _print(parts: Sequence[RenderableType]) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    for part in parts:
        console.print(part)
