"""Exports by a process of its own, beside a run that must not wait.

torch's exporter and the checker of ONNX keep the other threads of their process waiting, a tenth of a second at once
for a model of 30 MB. A process of its own takes seconds to load torch, so small models are exported where they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from trainer_service.interop.onnx_export import ExportError

_TIMEOUT_S = 600.0
_NICENESS = 10
"""The run comes first where cores are few."""
_ERROR = "mlagents-style: error: "


def export_beside(checkpoint: Path) -> list[str]:
    """Writes the models of a numbered checkpoint in a run's folder, as ``mlagents-style export`` does.

    Returns what was warned of.

    Raises:
        ExportError: they could not be written.
    """
    run = checkpoint.parent.parent
    line = [sys.executable, "-m", "trainer_service", "export", run.name]
    line += [f"--results-dir={run.parent}", f"--checkpoint={checkpoint}"]
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the run, which decides
        )
    except OSError as error:
        raise ExportError(f"no model could be written: {error}") from None
    with suppress(AttributeError, OSError):  # Windows, or it has ended
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    try:
        _, said = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise ExportError(f"no model could be written within {_TIMEOUT_S:g} s") from None
    lines = said.strip().splitlines()
    if process.returncode:
        reason = lines[-1].removeprefix(_ERROR) if lines else f"the export ended with {process.returncode}"
        raise ExportError(reason[:300])
    return lines
