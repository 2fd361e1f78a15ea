"""What behaviors start from: the run's own checkpoints, or another run's weights."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_service.config import RunOptions
from trainer_service.config.hyperparameters import GroupSettings
from trainer_service.run import RunFolder

if TYPE_CHECKING:
    from trainer_service.behavior import Behavior
    from trainer_service.checkpoint import Checkpoint
    from trainer_service.mlagents_checkpoint import Origin

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """What a behavior starts from."""

    origin: Origin
    is_own: bool
    """It is the run's own, which goes on; otherwise only the weights are taken."""


def read_starts(options: RunOptions, folder: RunFolder) -> dict[str, Start]:
    """Checkpoints to start from, by behavior; all are read before anything starts, so that a damaged one
    costs nothing."""
    own: dict[str, Path] = {}
    if options.checkpoint_settings.resume:
        own = {path.parent.name: path for path in sorted(folder.path.glob("*/checkpoint.pt"))}
    others: dict[str, Path] = {}
    for name, settings in options.behaviors.items():
        if settings.init_path is not None and name in own:
            _logger.warning("'%s' resumes from its own checkpoint: init_path is for its start only.", name)
        elif settings.init_path is not None:
            others[name] = _init_path(settings.init_path, name, folder)
        elif folder.initialize_from is not None:
            others[name] = folder.initialize_from / name / "checkpoint.pt"
    if folder.initialize_from is not None and options.default_settings is not None:
        # Whom the default settings will serve is not known yet: whoever has weights there.
        found = {path.parent.name: path for path in sorted(folder.initialize_from.glob("*/checkpoint.pt"))}
        others = {**found, **others}
    if not own and not others:
        return {}
    from trainer_service.mlagents_checkpoint import load_origin

    starts = {name: Start(load_origin(path), False) for name, path in others.items()}
    return starts | {name: Start(load_origin(path), True) for name, path in own.items()}


def _init_path(given: str, name: str, folder: RunFolder) -> Path:
    path = Path(given)
    if len(path.parts) == 1 and not path.exists() and folder.initialize_from is not None:
        return folder.initialize_from / name / path
    return path


def group_before(start: Start | None) -> int | None:
    """The size of groups that a checkpoint was made for: the first message of today may show a smaller one."""
    settings = getattr(None if start is None else start.origin, "settings", None)
    tuning = None if settings is None else settings.hyperparameters
    return tuning.group_size if isinstance(tuning, GroupSettings) else None


def checkpoint_of(origin: Origin, behavior: Behavior, seed: int) -> Checkpoint:
    """What a behavior starts from, in our form, whoever wrote it."""
    from trainer_service.mlagents_checkpoint import as_checkpoint

    conversion = as_checkpoint(origin, behavior.name, behavior.spec, behavior.settings, seed=seed)
    for part in conversion.left_behind:
        _logger.warning("'%s': not taken over from ML-Agents: %s.", behavior.name, part)
    return conversion.checkpoint
