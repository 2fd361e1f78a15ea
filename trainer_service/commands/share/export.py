"""Models for Unity, and bundles for other programs, from a run's checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

from trainer_service.commands.common.trained_run import folder_of
from trainer_service.errors import UserError
from trainer_service.running.interop.bundle import export_bundles
from trainer_service.running.interop.onnx_export import export_run


def export(
    run: str | os.PathLike[str],
    *,
    step: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    bundle: bool | str | os.PathLike[str] = False,
) -> dict[str, Path]:
    """Writes the ONNX models of a run again, as ``mlagents-style export`` does.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training.
        step: the checkpoints of this step instead of the newest ones.
        checkpoint: this file instead.
        output: a file that ends with .onnx, for one behavior, or a folder; None is beside the run's own.
        bundle: write a bundle of each behavior in place of the model alone, into this folder; True is ``bundle`` in
            the run's.

    Returns:
        The file of each behavior, or the folder of its bundle.

    Raises:
        UserError: no such run or checkpoint, one that is damaged, several behaviors for one file, both ``output`` and
            ``bundle``, or a folder for bundles that holds something else.
        ExportError: the policy cannot be expressed as a model, or onnx is not installed.
    """
    folder, file = folder_of(run), None if checkpoint is None else Path(checkpoint)
    if bundle is False:
        place = None if output is None else Path(output)
        written = export_run(folder, step=step, checkpoint=file, output=place)
    elif output is None:
        target = None if bundle is True else Path(bundle)
        written = export_bundles(folder, step=step, checkpoint=file, target=target)
    else:
        raise UserError("output, bundle: expected one of them, got both")
    return {policy.behavior: path for path, policy in written.items()}
