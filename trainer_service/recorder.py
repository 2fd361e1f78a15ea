"""What a run leaves behind: summaries, checkpoints and the list of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from trainer_service.behavior import Behavior
from trainer_service.checkpoint import save_checkpoint
from trainer_service.console import Console
from trainer_service.export import ExportError, export_policy
from trainer_service.files import SaveError
from trainer_service.metrics import SummaryWriter
from trainer_service.run import RunFolder
from trainer_service.status import CheckpointRecord, TrainingStatus, prune_checkpoints
from trainer_service.timers import Timers

_logger = logging.getLogger(__name__)
_RETRY_S = 60.0
"""How long a save that failed waits before it is tried again."""


class Recorder:
    """Writes a run's folder. While the run goes on, a full disk costs a warning, not the run.

    A folder that was opened to be read (``--inference``) gets nothing.
    """

    def __init__(
        self,
        folder: RunFolder,
        console: Console,
        writers: Sequence[SummaryWriter],
        timers: Timers,
        status: TrainingStatus,
        expected: Iterable[str] = (),
        autosave_s: float = 300.0,
    ) -> None:
        """Records a run.

        Args:
            folder, console, writers, timers: where to.
            status: what the run had saved before: nothing, unless it is resumed.
            expected: the behaviors that the configuration names.
            autosave_s: how often checkpoint.pt is renewed between the checkpoints of ``checkpoint_interval``;
                what a power cut can cost at most.
        """
        self._folder = folder
        self._console = console
        self._writers = writers
        self._timers = timers
        self._started = time.perf_counter()
        self._next_save: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._complained: set[str] = set()
        self._status = status
        self._expected = list(expected)
        self._autosave_s = autosave_s
        self._autosave_at: dict[str, float] = {}

    def watch(self, behavior: Behavior) -> None:
        """Starts to record a behavior that just showed up."""
        interval = behavior.settings.checkpoint_interval
        self._next_save[behavior.name] = (behavior.step // interval + 1) * interval

        self._autosave_at[behavior.name] = time.monotonic() + self._autosave_s
        if behavior.name in self._expected:
            self._expected.remove(behavior.name)

    def report(self, behavior: Behavior) -> None:
        """Writes the summary and the checkpoint of a behavior, where they are due."""
        if behavior.summary_due():
            self._summarize(behavior)
        if behavior.step >= self._next_save[behavior.name]:
            self._save_in_passing(behavior, self._save)
        elif time.monotonic() >= self._autosave_at[behavior.name]:
            self._save_in_passing(behavior, self._autosave)

    def finish(self, behaviors: Sequence[Behavior]) -> None:
        """Saves everything for the last time.

        Raises:
            SaveError: something could not be written; everything else was.
        """
        failures: list[SaveError] = []
        if behaviors:
            self._name_missing()
        if self._folder.writable:
            for behavior in behaviors:
                try:
                    self._save(behavior, final=True)
                except SaveError as error:
                    failures.append(error)
            try:
                self._folder.write_timers(self._timers.to_json({"pytorch_version": torch.__version__}))
            except SaveError as error:
                failures.append(error)
        for writer in self._writers:
            writer.close()
        if failures:
            raise failures[0]

    def _summarize(self, behavior: Behavior) -> None:
        self._name_missing()
        summary = behavior.summarize(time.perf_counter() - self._started)
        for writer in self._writers:
            try:
                writer.write(summary)
            except SaveError as error:
                self._complain_once(str(error))
        self._console.summary(summary, behavior.settings.max_steps)

    def _save_in_passing(self, behavior: Behavior, save: Callable[[Behavior], None]) -> None:
        if not self._folder.writable or time.monotonic() < self._retry_at.get(behavior.name, 0.0):
            return
        try:
            save(behavior)
        except SaveError as error:
            self._retry_at[behavior.name] = time.monotonic() + _RETRY_S
            _logger.warning("%s. The run goes on; the next try is in %g s.", error, _RETRY_S)

    def _autosave(self, behavior: Behavior) -> None:
        """Renews what ``--resume`` continues from, and nothing else."""
        if not behavior.diverged:
            save_checkpoint(behavior.checkpoint(), self._folder.checkpoint(behavior.name))
        self._autosave_at[behavior.name] = time.monotonic() + self._autosave_s

    def _save(self, behavior: Behavior, *, final: bool = False) -> None:
        """Weights first: whatever fails after them, they are safe."""
        if behavior.diverged:
            _logger.warning("'%s' is not saved: its weights are no numbers any more.", behavior.name)
            return
        name, step = behavior.name, behavior.step
        numbered = self._folder.numbered(name, step)
        save_checkpoint(behavior.checkpoint(), numbered, self._folder.checkpoint(name))
        models = self._export(behavior, final=final)
        files = [path.as_posix() for path in (*models[:1], numbered)]
        record = CheckpointRecord(
            steps=step,
            file_path=files[0],
            reward=behavior.drain_mean_return(),
            creation_time=time.time(),
            auxiliary_file_paths=tuple(files[1:]),
        )
        self._list(behavior, record, final=final)
        self._console.checkpoint(name, step)
        self._autosave_at[name] = time.monotonic() + self._autosave_s
        interval = behavior.settings.checkpoint_interval
        self._next_save[name] = (step // interval + 1) * interval
        _logger.info("Saved %s", numbered)

    def _export(self, behavior: Behavior, *, final: bool) -> list[Path]:
        """Writes the model of this step and, at the end, the one to take home; returns their paths.

        None are returned if that failed: a warning says why, and nothing else depends on it.
        """
        paths = [self._folder.numbered(behavior.name, behavior.step, ".onnx")]
        if final:
            paths.append(self._folder.final_model(behavior.name))
        try:
            export_policy(behavior.policy_network(), behavior.spec, *paths)
        except (ExportError, SaveError) as error:
            _logger.warning("'%s': %s. Its weights are safe; export them later.", behavior.name, error)
            return []
        _logger.info("Exported %s", paths[-1])
        return paths

    def _list(self, behavior: Behavior, record: CheckpointRecord, *, final: bool) -> None:
        status = self._status.behavior(behavior.name).with_checkpoint(record)
        removed: frozenset[str] = frozenset()
        if behavior.settings.keep_checkpoints > 0:
            status, removed = prune_checkpoints(status, behavior.settings.keep_checkpoints)
        if final:
            newest = status.checkpoints[-1]
            exported = newest.file_path.endswith(".onnx")
            file = self._folder.final_model(behavior.name).as_posix() if exported else newest.file_path
            status = replace(status, final_checkpoint=replace(newest, file_path=file))
        self._status = self._status.with_behavior(behavior.name, status)
        self._folder.write_status(self._status)
        self._folder.remove(behavior.name, removed)

    def _name_missing(self) -> None:
        """By the first summary every behavior has had its chance to show up."""
        if self._expected:
            _logger.warning(
                "No simulator has declared %s, which the configuration names; declared were %s.",
                ", ".join(f"'{name}'" for name in self._expected),
                ", ".join(f"'{name}'" for name in self._next_save),
            )
            self._expected = []

    def _complain_once(self, message: str) -> None:
        if message not in self._complained:
            self._complained.add(message)
            _logger.warning("%s. The run goes on without it.", message)
