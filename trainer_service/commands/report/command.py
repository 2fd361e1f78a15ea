"""The command ``report`` and the function of the same name."""

from __future__ import annotations

import os
from pathlib import Path

from trainer_service.running.runs.layout import RESULTS, RunLayout


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
    from trainer_service.commands.common.run_record import find_run

    return report_on(find_run(os.fspath(run), RESULTS), to)


def report_on(path: Path, to: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page on the run in a folder; see ``report``."""
    from trainer_service.commands.common.run_record import read_run
    from trainer_service.commands.report.report import require_output, write_report

    output = RunLayout(path).report if to is None else Path(to)
    require_output(output)
    write_report(read_run(path), output)
    return output
