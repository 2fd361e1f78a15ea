"""Summaries, checkpoints and the list of them: everything that a run leaves behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.member_policy import ExportModel
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, hold_replay, models
from trainer_service.running.callbacks import CallbackList
from trainer_service.running.curriculum import Curriculum, LessonState
from trainer_service.running.metrics import RunEnd, SummaryWriter
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import NotFiniteError, snapshot
from trainer_service.running.runs.files import SaveError, write_atomic
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import (
    COMPATIBLE_MLAGENTS_VERSION,
    BehaviorStatus,
    CheckpointRecord,
    TrainingStatus,
    prune_checkpoints,
)
from trainer_service.running.training.saving import CheckpointProgress, Model, Save, SavingThread, Written
from unity_bridge.codec.protocol import API_VERSION
from unity_bridge.side_channels import Aggregation, StatMessage

_logger = logging.getLogger(__name__)
_RETRY_S = 60.0
"""Seconds that a save which failed waits before it is tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Destinations of a run's reports."""

    folder: RunFolder
    console: Console
    writers: Sequence[SummaryWriter]
    """Everything that gets each summary."""

    timers: Timers
    """Written into the folder at the end."""

    export_model: ExportModel | None = None
    """Writes a model beside each numbered checkpoint; None for no models."""


class Recorder:
    """Writes a run's folder. During the run, a full disk costs a warning, not the run.

    A folder that was opened to be read (``--inference``) gets nothing.
    """

    def __init__(
        self,
        outputs: Outputs,
        status: TrainingStatus,
        *,
        expected: Iterable[str] = (),
        autosave_s: float = 300.0,
        curriculum: Curriculum | None = None,
        callbacks: CallbackList | None = None,
    ) -> None:
        """Prepares to record a run.

        Args:
            outputs: destinations.
            status: the earlier saves of the run: nothing, unless it is resumed.
            expected: the behaviors that the configuration names.
            autosave_s: how often the newest checkpoint is renewed between the checkpoints of ``checkpoint_interval``;
                what a power cut can cost at most.
            curriculum: its lessons go into summaries, and are stored with the weights that were trained in them.
            callbacks: told of numbered checkpoints.
        """
        self._folder = outputs.folder
        self._console = outputs.console
        self._writers = outputs.writers
        self._timers = outputs.timers
        self._export_model = outputs.export_model
        self._started = time.perf_counter()
        self._next_save: dict[str, int] = {}
        self._saved_at: dict[str, int] = {}
        """The step of each behavior's last numbered checkpoint by this process, written or being written."""
        self._saved_finished: set[str] = set()
        """Behaviors whose budget was used up by then: they learn nothing any more."""
        self._saved_ghosts: dict[str, int] = {}
        """Ghost steps of each behavior by then."""
        self._retry_at: dict[str, float] = {}
        self._warned: set[str] = set()
        self._status = status
        self._expected = tuple(expected)
        self._warned_of_missing = False
        self._autosave_s = autosave_s
        self._autosave_at: dict[str, float] = {}
        self._curriculum = curriculum or Curriculum({})
        self._callbacks = callbacks or CallbackList()
        self._saving = SavingThread()

    def add(self, behavior: Behavior) -> None:
        """Starts to record a behavior that just showed up."""
        interval = behavior.settings.checkpoint_interval
        self._next_save[behavior.name] = (behavior.step // interval + 1) * interval
        for name in _names_of(behavior):
            listed = self._status.behavior(name).with_files(self._folder.numbered_files(name))
            self._status = self._status.with_behavior(name, listed)
        self._autosave_at[behavior.name] = time.monotonic() + self._autosave_s

    def forget(self, behavior: Behavior) -> None:
        """Stops recording a behavior that is gone without experience, and removes its files."""
        name = behavior.name
        if self._saving.is_saving(name):
            self.wait()
        for known in (self._next_save, self._saved_at, self._saved_ghosts, self._retry_at, self._autosave_at):
            known.pop(name, None)
        self._saved_finished.discard(name)
        for each in _names_of(behavior):
            if not self._status.behavior(each).checkpoints:
                self._status = self._status.without_behavior(each)
        for writer in self._writers:
            writer.forget(name)
        self._console.forget(name)

    def write_due(self, behavior: Behavior) -> None:
        """Writes the summary and the checkpoint of a behavior, where they are due.

        A checkpoint is only copied here; a thread writes it. One that is due while the last one is being written waits
        for that, so checkpoints are of the same steps on every machine.
        """
        self._take_in()
        if behavior.summary_due():
            self._summarize(behavior)
        if self._is_saved(behavior) or not self._is_worth_saving(behavior):
            return
        if behavior.finished or behavior.step >= self._next_save[behavior.name]:
            self._try_save(behavior, self._save)
        elif time.monotonic() >= self._autosave_at[behavior.name] and not self._saving.is_saving(
            behavior.name
        ):
            self._try_save(behavior, self._autosave)

    def autosave(self, behaviors: Iterable[Behavior]) -> bool:
        """Renews the newest checkpoint of every behavior and waits for it. Returns whether all were saved.

        So a run that is killed continues in the lessons it has reached, and after the evaluations it has made.
        """
        saved = list(filter(self._is_worth_saving, behaviors))
        for behavior in saved:
            self._autosave_at[behavior.name] = 0.0  # until it has succeeded
            self._try_save(behavior, self._autosave)
        self.wait()
        return all(self._autosave_at[behavior.name] > 0 for behavior in saved)

    def wait(self) -> None:
        """Waits until everything that is being saved is on the disk."""
        self._take_in(wait_for_all=True)

    def finish(self, behaviors: Sequence[Behavior], end: RunEnd = "finished", ended_by: str = "") -> None:
        """Saves everything for the last time.

        end, ended_by: how and why the run ended, for timers.json and the summary writers.

        Raises:
            SaveError: something could not be written; everything else was.
            NotFiniteError: weights are not finite any more; the last good ones stay.
        """
        failures: list[Exception] = []
        if behaviors:
            self._warn_of_missing()
        for _, error in self._failures(wait_for_all=True):
            if not isinstance(error, SaveError | NotFiniteError):  # those are tried again
                failures.append(error)
        if self._folder.writable:
            for behavior in filter(self._is_worth_saving, behaviors):
                try:
                    # One that learned nothing may have played since it was saved, which changed its rating.
                    has_played = self._saved_ghosts.get(behavior.name, 0) != _ghost_steps(behavior)
                    if has_played or not self._is_saved(behavior):
                        self._save_now(behavior)
                    self._finalize(behavior)
                except Exception as error:  # one device that is lost, or one bug, is not to cost the others
                    failures.append(error)
            try:
                if failures:  # which a reader has to know of first
                    end, ended_by = "failed", str(failures[0])
                ending = {"end": end, "ended_by": ended_by}
                self._folder.write_timers(self._timers.to_json({**_versions(), **ending}))
            except SaveError as error:
                failures.append(error)
        self._saving.close()
        endings: list[Callable[[], None]] = [partial(writer.close, end) for writer in self._writers]
        for finish in endings + [writer.join for writer in self._writers]:
            try:
                finish()
            except SaveError as error:  # a file of summaries, without which the run continued before
                self._warn_once(str(error))
        for failure in failures[1:]:
            _logger.error("%s", failure, exc_info=None if isinstance(failure, UserError) else failure)
        if failures:
            raise failures[0]

    def _summarize(self, behavior: Behavior) -> None:
        self._warn_of_missing()
        summary = behavior.summarize(time.perf_counter() - self._started)
        summary = replace(summary, lessons=self._curriculum.lessons)
        for writer in self._writers:
            try:
                writer.write(summary)
            except SaveError as error:
                self._warn_once(str(error))
        self._console.summary(summary, behavior.settings.max_steps)

    def _try_save(self, behavior: Behavior, save: Callable[[Behavior], Save | None]) -> None:
        if not self._folder.writable:
            return
        if self._saving.is_saving(behavior.name):
            self.wait()
        if time.monotonic() < self._retry_at.get(behavior.name, 0.0):
            return
        started = save(behavior)
        # A user's callback is not to be called at a step that depends on the disk.
        is_awaited = started is not None and started.numbered
        if is_awaited and self._callbacks.listener("on_checkpoint") is not None:
            self.wait()

    def _save_now(self, behavior: Behavior) -> None:
        """Writes a numbered checkpoint and waits for it. Raises what kept it from being written."""
        self._console.activity(f"{behavior.name}: saving, and exporting a model for Unity", at_once=True)
        self._save(behavior)
        for _, error in self._failures(wait_for_all=True):
            raise error

    def _autosave(self, behavior: Behavior) -> Save | None:
        """Starts to renew the newest checkpoint, which ``--resume`` continues from, and nothing else."""
        if behavior.diverged:
            self._autosave_at[behavior.name] = time.monotonic() + self._autosave_s
            return None
        return self._saving.start(self._copy(behavior, self._folder.checkpoint(behavior.name)))

    def _save(self, behavior: Behavior) -> Save | None:
        """Starts to write a numbered checkpoint, with its models."""
        if behavior.diverged:
            _logger.warning("'%s' is not saved: its weights are no numbers any more.", behavior.name)
            return None
        name, step = behavior.name, behavior.step
        # What --resume reads comes first: a run that is killed in between resumes from here, not from before.
        save = self._copy(behavior, self._folder.checkpoint(name), self._folder.numbered(name, step))
        save = replace(save, mean_returns=behavior.returns.drain_means())
        try:
            save = replace(save, models=self._models(behavior))
        finally:  # whatever fails with the models, the weights are written
            self._saving.start(save)
            self._saved_at[name] = step
            if behavior.finished:
                self._saved_finished.add(name)
            self._saved_ghosts[name] = _ghost_steps(behavior)
            interval = behavior.settings.checkpoint_interval
            self._next_save[name] = (step // interval + 1) * interval
        return save

    def _models(self, behavior: Behavior) -> tuple[Model, ...]:
        """Returns copies of the acting policies, with the paths of their models."""
        if self._export_model is None:
            return ()
        found = []
        for name, (network, inputs) in models(behavior).items():
            path = self._folder.numbered(name, behavior.step, ".onnx")
            write = partial(self._export_model, network, inputs, path)
            found.append(Model(behavior=name, path=path, write=write))
        return tuple(found)

    def _copy(self, behavior: Behavior, *paths: Path) -> Save:
        """Returns a save of the current state of a behavior, with everything to store."""
        progress = self._progress_of(behavior)
        lessons = LessonState(progress.lessons, progress.lesson_history) if progress.lessons else None
        return Save(
            behavior=behavior,
            checkpoint=replace(snapshot(checkpoint_of(behavior)), lessons=lessons),
            paths=paths,
            replay=hold_replay(behavior, self._folder.replay(behavior.name)),
            progress=progress,
        )

    def _take_in(self, *, wait_for_all: bool = False) -> None:
        """Lists written files, and warns of failed saves."""
        if self._saving.is_idle:
            return
        for save, error in self._failures(wait_for_all=wait_for_all):
            if not isinstance(error, SaveError | NotFiniteError):
                raise error
            self._retry_at[save.behavior.name] = time.monotonic() + _RETRY_S
            save.behavior.add_stat(StatMessage("Saving/Failures", 1.0, Aggregation.SUM), is_own=True)
            _logger.warning("%s. The run continues; the next try is in %g s.", error, _RETRY_S)

    def _failures(self, *, wait_for_all: bool = False) -> Iterator[tuple[Save, Exception]]:
        """Lists written files, and yields failed saves."""
        for save, result in self._saving.take_in(wait_for_all=wait_for_all):
            try:
                self._complete(save, result.result())
            except Exception as error:
                name = save.behavior.name
                self._autosave_at[name] = 0.0
                if save.numbered:
                    del self._saved_at[name]
                    self._saved_finished.discard(name)
                    self._next_save[name] = save.checkpoint.step
                yield save, error
            else:
                if save.numbered:
                    self._callbacks.on_checkpoint(save.behavior.name, save.paths[-1])

    def _complete(self, save: Save, written: Written) -> None:
        """Lists the files of a save that are there now. Raises SaveError."""
        name, step = save.behavior.name, save.checkpoint.step
        for each, reason in written.refused.items():
            _logger.warning("'%s': %s. Its weights are safe; export them later.", each, reason)
        for path in written.exported.values():
            _logger.info("Exported %s", path)
        if save.numbered:
            numbered = save.paths[-1]
            files = {each: [path] for each, path in written.exported.items()}
            files.setdefault(name, []).append(numbered)
            records = {
                each: _record(step, paths, save.mean_returns.get(each)) for each, paths in files.items()
            }
            self._list_checkpoint(save, records)
            self._console.checkpoint(name, step)
            _logger.info("Saved %s", numbered)
        elif save.progress.lessons:
            self._write_status(self._status.behavior(name), save.progress)
        self._autosave_at[name] = time.monotonic() + self._autosave_s

    def _is_worth_saving(self, behavior: Behavior) -> bool:
        """Whether the configuration names the behavior, or it has experience."""
        return behavior.name in self._expected or behavior.has_experience

    def _is_saved(self, behavior: Behavior) -> bool:
        """Whether this process has saved everything that the behavior has learned."""
        saved_at = self._saved_at.get(behavior.name)
        if saved_at is None:
            return False
        return saved_at == behavior.step or behavior.name in self._saved_finished

    def _list_checkpoint(self, save: Save, records: Mapping[str, CheckpointRecord]) -> None:
        """Lists the files of a behavior or of a group's members, and removes checkpoints beyond the kept ones."""
        removed: dict[str, frozenset[str]] = {}
        for name, record in records.items():
            status = self._status.behavior(name).with_checkpoint(record)
            if (keep := save.checkpoint.settings.keep_checkpoints) > 0:
                status, removed[name] = prune_checkpoints(status, keep)
            self._status = self._status.with_behavior(name, status)
        self._write_status(self._status.behavior(save.behavior.name), save.progress)
        for name, files in removed.items():
            self._folder.remove(name, files)

    def _finalize(self, behavior: Behavior) -> None:
        """Copies the newest models to the top of the run's folder, and lists them as the final ones."""
        for name in _names_of(behavior):
            status = self._status.behavior(name)
            if not status.checkpoints:
                continue
            newest = status.checkpoints[-1]
            model = self._folder.numbered(name, newest.steps, ".onnx")
            home = self._folder.final_model(name)
            file_path = newest.file_path
            if model.name in newest.file_names and model.is_file():
                write_atomic(home, model.read_bytes())
                _logger.info("Copied %s to %s.", model, home)
                file_path = home.as_posix()
            final = replace(status, final_checkpoint=replace(newest, file_path=file_path))
            self._status = self._status.with_behavior(name, final)
        self._write_status(self._status.behavior(behavior.name), self._progress_of(behavior))

    def _progress_of(self, behavior: Behavior) -> CheckpointProgress:
        elo = None if behavior.self_play is None else behavior.self_play.rating
        history = self._curriculum.history_of(behavior.name)
        return CheckpointProgress(behavior.name, history, self._curriculum.numbers, elo)

    def _write_status(self, status: BehaviorStatus, progress: CheckpointProgress) -> None:
        """Writes the list of a behavior's checkpoints, with the lessons that it was in."""
        status = replace(status, lesson_history=progress.lesson_history, elo=progress.elo)
        self._status = replace(
            self._status.with_behavior(progress.behavior, status),
            lessons={**self._status.lessons, **progress.lessons},
        )
        self._folder.write_status(self._status)

    def _warn_of_missing(self) -> None:
        """Warns, once, of behaviors that are configured and have not shown up by the first summary."""
        missing = [name for name in self._expected if name not in self._next_save]
        if missing and not self._warned_of_missing:
            _logger.warning(
                "No simulator has declared %s, which the configuration names; declared were %s.",
                ", ".join(f"'{name}'" for name in missing),
                ", ".join(f"'{name}'" for name in self._next_save),
            )
        self._warned_of_missing = True

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _logger.warning("%s. The run continues without it.", message)


def _names_of(behavior: Behavior) -> list[str]:
    """The name of a behavior, and those of a group's members, which have models of their own."""
    return [behavior.name, *(member.behavior for member in behavior.spec.members)]


def _record(step: int, files: Sequence[Path], reward: float | None) -> CheckpointRecord:
    """The files of one step in the list, the one to play with first."""
    first, *others = (path.as_posix() for path in files)
    return CheckpointRecord(step, first, reward, time.time(), tuple(others))


def _ghost_steps(behavior: Behavior) -> int:
    return 0 if behavior.self_play is None else behavior.self_play.ghost_steps


def _versions() -> dict[str, str]:
    """Versions that timers.json names besides those it knows itself."""
    return {
        "mlagents_version": COMPATIBLE_MLAGENTS_VERSION,
        "mlagents_envs_version": COMPATIBLE_MLAGENTS_VERSION,
        "communication_protocol_version": API_VERSION,
        "pytorch_version": torch.__version__,
    }
