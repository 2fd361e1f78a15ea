"""Forks: a run's folder copied with everything that ``--resume`` restores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainer_service.runs.files import SaveError
from trainer_service.runs.layout import RunLayout

_NEVER_CHANGED = frozenset({".safetensors", ".npz", ".onnx", ".gif"})
"""Suffixes of files that runs replace or remove, but never change: a fork may share their bytes on the disk."""


def fork_run(source: Path, target: Path, *, same_run: bool = False) -> None:
    """Makes ``target`` a copy of a run that is not being written. An existing run folder is replaced as a whole.

    Args:
        source: the run's folder.
        target: the folder of the fork.
        same_run: whether the fork goes on as the same run for experiment trackers.

    Raises:
        SaveError: a file could not be written.
    """
    partial = target.with_name(f".{target.name}.partial")
    layout = RunLayout(source)
    try:
        for folder in filter(Path.exists, (partial, target)):
            shutil.rmtree(folder)
        for file in layout.files():
            if same_run or not file.match("run_logs/tracker-*.json"):
                _copy(file, partial / file.relative_to(source))
        os.replace(partial, target)
    except OSError as error:
        raise SaveError(Path(error.filename or target), error) from error


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix in _NEVER_CHANGED:
        try:
            os.link(file, target)
            return
        except OSError:
            pass  # a file system without links, or at its limit of them
    shutil.copy2(file, target)
