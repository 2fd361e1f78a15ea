"""The command ``compare``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer_service.cli.output import say, say_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH_OF_A_FILE = 200
"""Columns of tables that no terminal shows."""


def compare_runs(parsed: argparse.Namespace) -> int:
    """Prints the comparison of runs, and draws it where ``--plot`` asks for that. Returns the exit code."""
    from trainer_service.analysis.comparison_text import tables, to_json
    from trainer_service.api.comparison import compared
    from trainer_service.metrics.console import Console

    with Console(tty=False, stream=sys.stderr):
        comparison = compared(
            parsed.runs,
            parsed.results_dir,
            parsed.group_by,
            plot=parsed.plot,
            title=parsed.title,
            metric=parsed.metric,
            behavior=parsed.behavior,
            threshold=parsed.threshold,
            until=parsed.until,
        )
    if parsed.json:
        say_json(to_json(comparison))
    else:
        _print([*tables(comparison, parsed.group_by)])
        if parsed.plot is not None:
            say(f"\nCurves in {parsed.plot}")
    return 0


def _print(parts: Sequence[RenderableType]) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    for part in parts:
        console.print(part)
