"""Saves: copies of a behavior between two exchanges, which a thread writes during the run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.curriculum import LessonHistory
from trainer_service.running.runs.checkpoint import Checkpoint, save_checkpoint
from trainer_service.running.runs.replay_file import ReplaySave

_SWITCH_INTERVAL_S = 0.0005


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Model:
    """A policy that a save writes as a model, too."""

    behavior: str
    path: Path
    write: Callable[[], None]
    """Writes it there. Raises UserError where the policy cannot be expressed, or the file not be written."""


@dataclass(frozen=True, slots=True, eq=False)
class CheckpointProgress:
    """The entries of a behavior in the list of checkpoints, apart from its files."""

    behavior: str
    lesson_history: LessonHistory
    """The recent returns of the behavior that its lessons keep."""
    lessons: Mapping[str, int]
    """The number of each parameter's lesson."""
    elo: float | None
    """Its rating under self-play."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Save:
    """A behavior at one step, with all that is written of it: copies, which training leaves alone."""

    behavior: Behavior
    """The behavior itself, which continues."""
    checkpoint: Checkpoint
    paths: tuple[Path, ...]
    """The paths of the checkpoint; ``--resume`` reads the first."""
    replay: ReplaySave | None = None
    """Writes the replay buffer of the same moment."""
    models: tuple[Model, ...] = ()
    progress: CheckpointProgress
    mean_returns: Mapping[str, float] = field(default_factory=dict)
    """Mean returns since the last numbered checkpoint, see ``Returns.drain_means``."""

    @property
    def numbered(self) -> bool:
        """Whether there is a checkpoint of this step alone, which is listed."""
        return len(self.paths) > 1

    def write(self) -> Written:
        """Writes everything. Weights first: whatever fails after them, they are safe.

        Raises:
            NotFiniteError, SaveError: see ``save_checkpoint``.
        """
        save_checkpoint(self.checkpoint, *self.paths, replay=self.replay)
        exported: dict[str, Path] = {}
        refused: dict[str, str] = {}
        for model in self.models:
            try:
                model.write()
            except UserError as error:
                refused[model.behavior] = str(error)
            else:
                exported[model.behavior] = model.path
        return Written(exported, refused)


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """The result of a save: the exported models and the failed exports. Its weights are written."""

    exported: Mapping[str, Path]
    """The file of each model by its behavior."""
    refused: Mapping[str, str]
    """Why there is no model, by its behavior."""


class SavingThread:
    """A thread that writes saves in their order. Of each behavior one at most is under way."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self._under_way: dict[str, tuple[Save, Future[Written]]] = {}

    def start(self, save: Save) -> Save:
        """Starts to write. Returns the save. Raises ValueError while an earlier one of the behavior is under way."""
        name = save.behavior.name
        if name in self._under_way:
            raise ValueError(f"a save of '{name}' is under way")
        self._under_way[name] = save, self._executor.submit(_write_aside, save)
        return save

    def is_saving(self, name: str) -> bool:
        """Whether a save of that behavior was started and not taken in yet."""
        return name in self._under_way

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being saved, and no result waits to be taken in."""
        return not self._under_way

    def take_in(self, *, wait_for_all: bool = False) -> Iterator[tuple[Save, Future[Written]]]:
        """Yields the saves that have ended, with their results. wait_for_all: until all have."""
        if wait_for_all:
            wait([future for _, future in self._under_way.values()])
        for name, (save, future) in list(self._under_way.items()):
            if future.done():
                del self._under_way[name]
                yield save, future

    def close(self) -> None:
        """Ends the thread, which has nothing to do any more."""
        self._executor.shutdown()


def _write_aside(save: Save) -> Written:
    """Writes a save, and lets the main thread have the interpreter sooner than Python would.

    After each operation of torch the main thread asks for it again, and an exporter gives it back only when the
    interval is over: with Python's 5 ms a decision would take a tenth of a second longer.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        return save.write()
    finally:
        sys.setswitchinterval(before)
