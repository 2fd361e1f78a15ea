"""Which checkpoints of its own a run goes on from, and what becomes of newer ones."""

from __future__ import annotations

import logging
from pathlib import Path

from trainer_service.errors import UserError
from trainer_service.interop.mlagents_checkpoint import SourceCheckpoint, load_source
from trainer_service.runs.checkpoint import load_checkpoint
from trainer_service.runs.files import write_atomic
from trainer_service.runs.folder import RunFolder

_logger = logging.getLogger(__name__)

Found = dict[str, tuple[Path, SourceCheckpoint]]
"""A checkpoint of each behavior, by name: where it was read, and what it says."""


def checkpoints_to_resume(folder: RunFolder, which: bool | int | str) -> Found:
    """The checkpoint of each behavior that a run goes on from. Changes nothing.

    Args:
        folder: of the run.
        which: true for the newest that can be read; a step; or ``best``.

    Raises:
        UserError: there is none, or not the one that was asked for.
    """
    names = folder.saved_behaviors()
    if not names:
        raise UserError(
            f"'{folder.path}' holds no checkpoint to go on from, neither checkpoint.pt nor a numbered one. "
            "Use --force to begin anew."
        )
    if which is True:
        return {name: _newest(folder, name) for name in names}
    paths = _best(folder, names) if which == "best" else _of_step(folder, names, int(which))
    return {name: (path, load_source(path)) for name, path in paths.items()}


def make_newest(folder: RunFolder, name: str, step: int, path: Path) -> None:
    """Makes a checkpoint the newest of its behavior: what was saved after it is set aside, nothing is lost.

    So a run that is killed before it saves again goes on from there once more.

    Raises:
        SaveError: something could not be moved.
    """
    newest, best = folder.checkpoint(name), folder.best(name)
    content = None if path == newest else path.read_bytes()
    later = [file for at, files in folder.numbered_files(name).items() if at > step for file in files]
    if content is not None and newest.exists():
        later.append(newest)
    if later and best.exists() and _is_later(best, step):
        later += [each for each in (best, best.with_suffix(".onnx")) if each.exists()]
    if later:
        aside = folder.set_aside(later)
        _logger.warning(
            "'%s' goes on from step %d; %d files that were saved later, or are damaged, are in '%s' from now on.",
            name, step, len(later), aside,
        )  # fmt: skip
    if content is not None:
        write_atomic(newest, content)


def _newest(folder: RunFolder, name: str) -> tuple[Path, SourceCheckpoint]:
    """The newest that can be read; says so where that is not checkpoint.pt."""
    newest = folder.checkpoint(name)
    numbered = [folder.numbered(name, step) for step in reversed(_steps(folder, name))]
    reasons: list[str] = []
    for path in [newest, *numbered]:
        try:
            origin = load_source(path)
        except UserError as error:
            reasons.append(str(error))
            continue
        if reasons:
            _logger.warning("%s. '%s' goes on from '%s', step %d.", reasons[0], name, path, origin.step)
        return path, origin
    raise UserError(
        f"none of the {len(reasons)} checkpoints of '{name}' can be read. {reasons[0]}. Use --force to begin anew."
    )


def _of_step(folder: RunFolder, names: list[str], step: int) -> dict[str, Path]:
    """Those of a step, or the newest before it: behaviors count their steps each by itself."""
    steps = {name: _steps(folder, name) for name in names}
    there = "; ".join(f"{name}: {', '.join(map(str, known)) or 'none'}" for name, known in steps.items())
    before = {name: [at for at in known if at <= step] for name, known in steps.items()}
    if not any(step in known for known in steps.values()) or not all(before.values()):
        raise UserError(f"--resume {step}: '{folder.path}' has no checkpoint of that step; it has {there}")
    return {name: folder.numbered(name, known[-1]) for name, known in before.items()}


def _best(folder: RunFolder, names: list[str]) -> dict[str, Path]:
    missing = [name for name in names if not folder.best(name).is_file()]
    if missing:
        raise UserError(
            f"--resume best: no best.pt of {', '.join(missing)} in '{folder.path}'; "
            "a run keeps one where its configuration has a section 'evaluation'"
        )
    return {name: folder.best(name) for name in names}


def _steps(folder: RunFolder, name: str) -> list[int]:
    """Steps of the numbered checkpoints of a behavior, ascending."""
    files = folder.numbered_files(name)
    return [step for step in files if folder.numbered(name, step) in files[step]]


def _is_later(path: Path, step: int) -> bool:
    try:
        return load_checkpoint(path).step > step
    except UserError:
        return True
