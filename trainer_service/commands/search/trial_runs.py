"""The runs of a sweep's trials: their folders, their commands, and how far they came."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trainer_service.commands.common.jobs import Job
from trainer_service.commands.common.run_record import RunRecord, read_run
from trainer_service.commands.search.objective import Objective
from trainer_service.commands.search.space import short_text, with_values
from trainer_service.commands.search.trial_record import TrialRecord
from trainer_service.commands.status.run_status import Ending, run_status
from trainer_service.config import parse_run_options
from trainer_service.config.reading.document import dump_document, read_document
from trainer_service.config.reading.settings import split_path
from trainer_service.errors import UserError
from trainer_service.running.runs.files import SaveError, write_atomic
from trainer_service.running.runs.layout import LOCK, RunLayout
from trainer_service.running.runs.lock import AlreadyLockedError, FileLock, is_locked

_BY_SIGNAL = "SIG"
"""The beginning of the reason why a run was interrupted: the name of a signal."""


class SweepFolder:
    """The folder of a sweep.

    ::

        <results-dir>/<sweep>/
          base.yaml               the configuration of every trial, without the sampled values
          best.yaml               the configuration of the best trial
          settings.json           settings that must not change during the sweep
          journal.log             Optuna's study
          trial-0003/             the run of a trial; with several seeds trial-0003-SEED
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base, self.best = path / "base.yaml", path / "best.yaml"
        self.settings, self.journal = path / "settings.json", path / "journal.log"

    @contextmanager
    def held(self, *, resume: bool) -> Iterator[None]:
        """A context in which no other process may use the folder, which is made if it is missing.

        resume: whether a sweep in it is to be resumed.

        Raises:
            UserError: it is taken, holds no sweep to resume, or another process writes there.
        """
        if resume and not self.settings.is_file():
            raise UserError(f"no sweep in '{self.path}'. Remove --resume to begin a new one.")
        if not resume and self.path.is_dir() and any(entry.name != LOCK for entry in self.path.iterdir()):
            raise UserError(
                f"'{self.path}' is taken. Use --resume to continue the sweep there, or choose a new --run-id."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / LOCK)
        except OSError as error:
            raise SaveError(self.path, error) from error
        except AlreadyLockedError as error:
            raise UserError(
                f"'{self.path}' is in use: process {error.holder} runs this sweep. Stop it first."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def require_fewer(self, trials: int) -> None:
        """Raises UserError for the folder of a trial that the journal, which has so many, does not know."""
        for path in self.path.glob("trial-*"):
            number = path.name.split("-")[1]
            if number.isdecimal() and int(number) >= trials:
                raise UserError(
                    f"'{self.journal}' has {trials} trials, but '{path.name}' is there: the journal is damaged. "
                    "Restore it, or begin another sweep with a new --run-id."
                )

    def write_base(self, configuration: Mapping[str, Any]) -> None:
        """Replaces ``base.yaml``. Raises SaveError."""
        write_atomic(self.base, dump_document(configuration))

    def write_best(
        self, trial: TrialRecord, configuration: Mapping[str, Any], seed: int, objective: str
    ) -> None:
        """Replaces ``best.yaml``: the base with the values of a trial, each with a comment. Raises SaveError."""
        values = {**trial.values, "env_settings.seed": seed}
        # A setting is one line, so that a comment may follow it.
        write_atomic(self.best, dump_document(with_values(configuration, values), width=1000))
        lines = self.best.read_text(encoding="utf-8").splitlines()
        places = read_document(self.best).lines
        for path in trial.values:
            lines[places[tuple(split_path(path))] - 1] += f"  # of trial {trial.number}"
        run = self.best.as_posix()
        head = [
            f"# The best trial of the sweep '{self.path.name}': trial {trial.number}, {objective} {trial.score:.6g}.",
            f"#   mlagents-style learn {run} --run-id={self.path.name}-best",
        ]
        write_atomic(self.best, "\n".join([*head, *lines, ""]))


@dataclass(frozen=True, slots=True)
class TrialRuns:
    """The runs of one trial, one for each seed."""

    folder: SweepFolder
    trial: TrialRecord
    seeds: tuple[int, ...]

    def run_id(self, index: int) -> str:
        """The id of the run with a seed, counted from 0."""
        name = f"trial-{self.trial.number:04d}"
        return name if len(self.seeds) == 1 else f"{name}-{self.seeds[index]}"

    def path(self, index: int) -> Path:
        """The folder of the run with a seed."""
        return self.folder.path / self.run_id(index)

    def job(self, index: int) -> Job:
        """The command that begins a run, or resumes it."""
        layout = RunLayout(self.path(index))
        started = (
            "--resume" if layout.saved_behaviors() else "--force"
        )  # nothing is lost without a checkpoint
        settings = (f"--set={path}={json.dumps(value)}" for path, value in self.trial.values.items())
        arguments = (
            "learn", str(self.folder.base), f"--run-id={self.run_id(index)}",
            f"--results-dir={self.folder.path}", f"--seed={self.seeds[index]}", started, *settings,
        )  # fmt: skip
        return Job(self.run_id(index), arguments, layout.job_log)

    def require_values(self) -> None:
        """Raises UserError for a run that has other values than the trial has in the journal."""
        for file in (RunLayout(self.path(at)).configuration for at in range(len(self.seeds))):
            values = read_document(file).values if file.is_file() else {}
            laid_over = with_values(values, self.trial.values) if values else {}
            if parse_run_options(values, label=str(file)).options != parse_run_options(laid_over).options:
                raise UserError(
                    f"{file}: its values are not those of trial {self.trial.number} in '{self.folder.journal}': "
                    f"{short_text(self.trial.values)}. Restore them, or begin another sweep."
                )

    def next_index(self) -> int | None:
        """The first seed whose run has not ended by itself; None if all have."""
        return next((at for at in range(len(self.seeds)) if not has_ended(self.path(at))), None)

    def are_written(self) -> bool:
        """Whether a process still writes one of the runs, as those of a killed sweep do while they are saved."""
        return any(is_locked(RunLayout(self.path(at)).lock) for at in range(len(self.seeds)))

    def steps(self) -> int:
        """Agent steps of all runs so far."""
        return sum(map(steps_of, filter(Path.is_dir, map(self.path, range(len(self.seeds))))))

    def score(self, objective: Objective) -> float:
        """The mean score over the seeds. Raises UserError where a run has none."""
        return fmean(objective.score(read_run(self.path(at))) for at in range(len(self.seeds)))


def has_ended(path: Path) -> bool:
    """Whether a run used its budget, or a rule or a callback ended it; a killed or interrupted run has not."""
    if not path.is_dir():
        return False
    status = run_status(read_run(path))
    if status.ending is Ending.STOPPED:
        return bool(status.ended_by) and not status.ended_by.startswith(_BY_SIGNAL)
    return status.ending is Ending.FINISHED


def steps_of(path: Path) -> int:
    """Agent steps of a run, all behaviors together."""
    return sum(progress.step for progress in run_status(read_run(path)).behaviors.values())


class RunWatch:
    """Reads a run again when its summaries or evaluations have changed."""

    def __init__(self, path: Path) -> None:
        self._layout = RunLayout(path)
        self._sizes: tuple[int, ...] = ()

    def news(self) -> RunRecord | None:
        """The run; None without change since the last call."""
        files = (self._layout.metrics, self._layout.evaluations)
        sizes = tuple(file.stat().st_size if file.is_file() else 0 for file in files)
        if sizes == self._sizes or not any(sizes):
            return None
        self._sizes = sizes
        return read_run(self._layout.path)
