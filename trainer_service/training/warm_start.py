"""What behaviors start from: the run's own checkpoints, or another run's weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_service.config import RunOptions
from trainer_service.config.hyperparameters.common import GroupSettings
from trainer_service.runs.folder import RunFolder

if TYPE_CHECKING:
    from trainer_service.behaviors.behavior import Behavior
    from trainer_service.interop.mlagents_checkpoint import SourceCheckpoint
    from trainer_service.runs.checkpoint import Checkpoint

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What a behavior starts from."""

    origin: SourceCheckpoint
    path: Path
    """Where it was read."""
    is_resume: bool
    """It is the run's own, which goes on; otherwise only the weights are taken."""

    @property
    def is_newest(self) -> bool:
        """It is the newest that there is, and what lies beside it was saved with it."""
        return self.path.name == "checkpoint.pt"


_DEFAULT = ""
"""No behavior's name: who is served by the default settings, and what else is said of nobody by name."""


def warm_start_of(name: str, warm_starts: Mapping[str, WarmStart]) -> WarmStart | None:
    """What a behavior starts from; None: it starts afresh."""
    return warm_starts.get(name) or warm_starts.get(_DEFAULT)


def read_warm_starts(options: RunOptions, folder: RunFolder) -> dict[str, WarmStart]:
    """Checkpoints to start from: see ``warm_start_of``.

    All are read before anything starts, so that a damaged one costs nothing.
    """
    own: dict[str, WarmStart] = {}
    if options.checkpoint_settings.resume:
        from trainer_service.training.resuming import checkpoints_to_resume

        found = checkpoints_to_resume(folder, options.checkpoint_settings.resume)
        own = {name: WarmStart(origin, path, True) for name, (path, origin) in found.items()}
    others: dict[str, Path] = {}
    for name, settings in options.behaviors.items():
        if settings.init_path is not None and name in own:
            _logger.warning("'%s' resumes from its own checkpoint: init_path is for its start only.", name)
        elif settings.init_path is not None:
            others[name] = _init_path(settings.init_path, name, folder)
        elif folder.initialize_from is not None:
            others[name] = folder.initialize_from / name / "checkpoint.pt"
    if options.default_settings is not None and not own:
        # A run that goes on needs no start, and must not fail because somebody has since removed it.
        others = {**_default_paths(options.default_settings.init_path, folder), **others}
    if not others:
        return own
    from trainer_service.interop.mlagents_checkpoint import load_source

    return {name: WarmStart(load_source(path), path, False) for name, path in others.items()} | own


def _default_paths(given: str | None, folder: RunFolder) -> dict[str, Path]:
    """Whom the default settings will serve is not known yet: whoever has weights where they are looked for."""
    if given is not None and not _is_file_name(given, folder):
        return {_DEFAULT: Path(given)}
    if folder.initialize_from is None:
        return {}
    found = folder.initialize_from.glob(f"*/{given or 'checkpoint.pt'}")
    return {path.parent.name: path for path in sorted(found)}


def _is_file_name(given: str, folder: RunFolder) -> bool:
    """Whether it is a file's name below the folder of the run to initialize from."""
    path = Path(given)
    return len(path.parts) == 1 and not path.exists() and folder.initialize_from is not None


def _init_path(given: str, name: str, folder: RunFolder) -> Path:
    if folder.initialize_from is not None and _is_file_name(given, folder):
        return folder.initialize_from / name / given
    return Path(given)


def trained_group_size(start: WarmStart | None) -> int | None:
    """The size of groups that a checkpoint was made for: the first message of today may show a smaller one."""
    settings = getattr(None if start is None else start.origin, "settings", None)
    tuning = None if settings is None else settings.hyperparameters
    return tuning.group_size if isinstance(tuning, GroupSettings) else None


def converted_checkpoint(origin: SourceCheckpoint, behavior: Behavior, seed: int) -> Checkpoint:
    """What a behavior starts from, in our form, whoever wrote it."""
    from trainer_service.interop.mlagents_checkpoint import convert_checkpoint

    conversion = convert_checkpoint(origin, behavior.name, behavior.spec, behavior.settings, seed=seed)
    for part in conversion.left_out:
        _logger.warning("'%s': not taken over from ML-Agents: %s.", behavior.name, part)
    return conversion.checkpoint
