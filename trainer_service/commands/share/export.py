"""Models for Unity from a run's checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

from trainer_service.commands.common.trained_run import folder_of
from trainer_service.running.interop.onnx_export import export_run


def export(
    run: str | os.PathLike[str],
    *,
    step: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
) -> dict[str, Path]:
    """Writes the ONNX models of a run again, as ``mlagents-style export`` does.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training.
        step: the checkpoints of this step instead of the newest ones.
        checkpoint: this file instead.
        output: a file that ends with .onnx, for one behavior, or a folder; None is beside the run's own.

    Returns:
        The file of each behavior.

    Raises:
        UserError: no such run or checkpoint, one that is damaged, or several behaviors for one file.
        ExportError: the policy cannot be expressed as a model, or onnx is not installed.
    """
    written = export_run(
        folder_of(run),
        step=step,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        output=None if output is None else Path(output),
    )
    return {policy.behavior: path for path, policy in written.items()}
