"""The command ``report`` and the function of the same name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.flags import RESULTS, ResultsDir, Run
from trainer_service.commands.common.output import CommandResult
from trainer_service.commands.common.run_record import find_run, read_run
from trainer_service.commands.report.report import require_output, write_report
from trainer_service.running.metrics.console import Console
from trainer_service.running.runs.layout import RunLayout


def report(run: str | os.PathLike[str], to: str | os.PathLike[str] | None = None) -> Path:
    """Writes a page on a run that can be mailed, as ``mlagents-style report`` does.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training. It may still be running.
        to: the file; None is ``report.html`` in the run's folder.

    Returns:
        The file.

    Raises:
        UserError: there is no such run, or the file cannot be written.
    """
    return report_on(find_run(os.fspath(run), RESULTS), to)


def report_run(
    run: Run,
    *,
    to: Annotated[Path | None, Flag("where (default report.html in the run's folder)", "FILE")] = None,
    results_dir: ResultsDir = RESULTS,
) -> CommandResult:  # fmt: skip
    """Writes one HTML file on a run of this trainer or of ML-Agents, finished or not: curves, scores, film,
    configuration, timers and how it ended. It needs nothing beside it.
    """
    path = find_run(run, results_dir)
    with Console(tty=False, stream=sys.stderr):
        output = report_on(path, to)
    return CommandResult({"run": str(path), "file": str(output)}, [f"Report on '{path}' in {output}"])


def report_on(path: Path, to: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page on the run in a folder; see ``report``."""
    output = RunLayout(path).report if to is None else Path(to)
    require_output(output)
    write_report(read_run(path), output)
    return output
