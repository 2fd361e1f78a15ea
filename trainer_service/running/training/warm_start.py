"""Checkpoints that behaviors start from: the run's own, which it resumes from, or those of another run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainer_service.config import RunOptions, TrainerSettings
from trainer_service.config.hyperparameters.common import GroupSettings
from trainer_service.errors import UserError
from trainer_service.running.runs.checkpoint import Checkpoint, UnreadableError, load_checkpoint
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import NEWEST, RunLayout, existing_state
from unity_bridge.specs import BehaviorSpec

if TYPE_CHECKING:
    from trainer_service.running.behaviors.behavior import Behavior

    LoadSource = Callable[[Path], "Checkpoint | ForeignCheckpoint"]
    """Reads a checkpoint that a behavior can start from. Raises UserError."""

_logger = logging.getLogger(__name__)


class ForeignCheckpoint(Protocol):
    """A checkpoint of another trainer, which is converted once the behavior is known."""

    @property
    def step(self) -> int:
        """Agent steps that it was trained for."""
        ...

    def converted(
        self, behavior: str, spec: BehaviorSpec, settings: TrainerSettings, *, seed: int
    ) -> Checkpoint:
        """The checkpoint in our form. Warns of parts that are left out. Raises UserError where it does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A checkpoint that a behavior starts from."""

    source: Checkpoint | ForeignCheckpoint
    path: Path
    """Where it was read."""
    is_resume: bool
    """Whether it is the run's own, which continues; otherwise only the weights are taken."""

    @property
    def is_newest(self) -> bool:
        """Whether it is the newest: then the lessons of the run are of the same moment."""
        return self.path.stem == Path(NEWEST).stem

    def checkpoint_for(self, behavior: Behavior, seed: int) -> Checkpoint:
        """The checkpoint in our form. seed: starts the random streams of a foreign one. Raises UserError."""
        if isinstance(self.source, Checkpoint):
            return self.source
        return self.source.converted(behavior.name, behavior.spec, behavior.settings, seed=seed)


_DEFAULT = ""
"""The key for all behaviors without one of their own: no behavior has an empty name."""


def warm_start_of(name: str, warm_starts: Mapping[str, WarmStart]) -> WarmStart | None:
    """The checkpoint that a behavior starts from; None where it starts afresh."""
    return warm_starts.get(name) or warm_starts.get(_DEFAULT)


def read_warm_starts(
    options: RunOptions, folder: RunFolder, load: LoadSource = load_checkpoint
) -> dict[str, WarmStart]:
    """Checkpoints to start from: see ``warm_start_of``.

    All are read before anything starts, so that a damaged one costs nothing.
    """
    own: dict[str, WarmStart] = {}
    if options.checkpoint_settings.resume:
        own = checkpoints_to_resume(folder, options.checkpoint_settings.resume, load)
        for name, start in own.items():
            _require_same_members(name, options, trained_spec(start))
    others: dict[str, Path] = {}
    for name, settings in options.behaviors.items():
        if settings.init_path is not None and name in own:
            _logger.warning("'%s' resumes from its own checkpoint: init_path is for its start only.", name)
        elif settings.init_path is not None:
            others[name] = _init_path(settings.init_path, name, folder)
        elif folder.initialize_from is not None:
            others[name] = RunLayout(folder.initialize_from).checkpoint(name)
    if options.default_settings is not None and not own:
        # A run that continues needs no start, and must not fail because that was removed since.
        others = {**_default_paths(options.default_settings.init_path, folder), **others}
    return {name: WarmStart(load(path), path, is_resume=False) for name, path in others.items()} | own


def _require_same_members(name: str, options: RunOptions, trained: BehaviorSpec | None) -> None:
    """Raises UserError if a resumed policy was trained for other members than the configuration has."""
    before = [member.behavior for member in trained.members] if trained is not None else []
    now = list(options.teams.get(name, ()))
    if before != now:
        was, is_now = (
            f"the team {{{name}: [{', '.join(each)}]}}" if each else "no team" for each in (before, now)
        )
        raise UserError(f"--resume: '{name}' was {was} under 'teams', and is {is_now} now")


def _default_paths(given: str | None, folder: RunFolder) -> dict[str, Path]:
    """Returns the paths of existing checkpoints for behaviors that only the default settings cover, by name."""
    if given is not None and not _is_file_name(given, folder):
        return {_DEFAULT: Path(given)}
    if folder.initialize_from is None:
        return {}
    return RunLayout(folder.initialize_from).states(given or NEWEST)


def _is_file_name(given: str, folder: RunFolder) -> bool:
    """Whether it is a file's name below the folder of the run to initialize from."""
    path = Path(given)
    return len(path.parts) == 1 and not path.exists() and folder.initialize_from is not None


def _init_path(given: str, name: str, folder: RunFolder) -> Path:
    if folder.initialize_from is not None and _is_file_name(given, folder):
        return folder.initialize_from / name / given
    return Path(given)


def trained_group_size(start: WarmStart | None) -> int | None:
    """The group size that a checkpoint was made for: the first message of a simulator may show a smaller group."""
    settings = getattr(None if start is None else start.source, "settings", None)
    tuning = None if settings is None else settings.hyperparameters
    return tuning.group_size if isinstance(tuning, GroupSettings) else None


def trained_spec(start: WarmStart | None) -> BehaviorSpec | None:
    """Returns the spec of a checkpoint of this project; None for a checkpoint of ML-Agents, and without one."""
    return getattr(None if start is None else start.source, "spec", None)


def checkpoints_to_resume(
    folder: RunFolder, which: bool | int | str, load: LoadSource = load_checkpoint
) -> dict[str, WarmStart]:
    """The checkpoint of each behavior that a run resumes from. Changes nothing.

    Args:
        folder: of the run.
        which: true for the newest that can be read; a step; or ``best``.
        load: reads a file.

    Raises:
        UserError: there is none, or not the one that was asked for.
    """
    names = folder.saved_behaviors()
    if not names:
        raise UserError(
            f"'{folder.path}' holds no checkpoint to continue from, neither the newest nor a numbered one. "
            "Use --force to start over."
        )
    if which is True:
        return {name: _newest(folder, name, load) for name in names}
    paths = (
        folder.best_checkpoints(names) if which == "best" else folder.checkpoints_of_step(names, int(which))
    )
    return {name: WarmStart(load(path), path, is_resume=True) for name, path in paths.items()}


def make_newest(folder: RunFolder, name: str, step: int, path: Path, members: Sequence[str] = ()) -> None:
    """Makes a checkpoint the newest of its behavior: what was saved after it is set aside, nothing is lost.

    So a run that is killed before it saves again resumes from there once more. members: of a group, which have models.

    Raises:
        SaveError: something could not be moved.
    """
    newest, best = existing_state(folder.checkpoint(name)), existing_state(folder.best(name))
    content = None if path == newest else path.read_bytes()
    names = [name, *members]
    later = [
        file
        for each in names
        for at, files in folder.numbered_files(each).items()
        if at > step
        for file in files
    ]
    if content is not None and newest.exists():
        later.append(newest)
    if later and best.exists() and _is_later(best, step):
        models = [folder.best(each).with_suffix(".onnx") for each in names]
        later += [each for each in (best, *models) if each.exists()]
    if later:
        aside = folder.set_aside(later)
        _logger.warning(
            "'%s' continues from step %d; %d files that were saved later, or are damaged, are in '%s' from now on.",
            name, step, len(later), aside,
        )  # fmt: skip
    if content is not None:
        write_atomic(folder.checkpoint(name).with_suffix(path.suffix), content)


def _newest(folder: RunFolder, name: str, load: LoadSource) -> WarmStart:
    """The newest checkpoint that can be read; logs a warning where that is a numbered one."""
    newest = existing_state(folder.checkpoint(name))
    numbered = reversed(folder.numbered_states(name).values())
    reasons: list[str] = []
    for path in [newest, *numbered]:
        try:
            start = WarmStart(load(path), path, is_resume=True)
        except UnreadableError:
            raise
        except UserError as error:
            reasons.append(str(error))
            continue
        if reasons:
            _logger.warning(
                "%s. '%s' continues from '%s', step %d.", reasons[0], name, path, start.source.step
            )
        return start
    raise UserError(
        f"none of the {len(reasons)} checkpoints of '{name}' can be read. {reasons[0]}. Use --force to start over."
    )


def _is_later(path: Path, step: int) -> bool:
    try:
        return load_checkpoint(path).step > step
    except UserError:
        return True
