"""A sweep: trials of sampled values, each a run of its own, until a limit is reached."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.jobs import JobEnd, JobPool, Place
from trainer_service.commands.search.objective import Objective, objective_of
from trainer_service.commands.search.space import Space, Values, require_valid, short_text, with_values
from trainer_service.commands.search.trial_record import (
    Direction,
    Pruner,
    SamplerName,
    TrialRecord,
    require_optuna,
)
from trainer_service.commands.search.trial_runs import RunWatch, SweepFolder, TrialRuns, has_ended
from trainer_service.config import RunOptions, parse_run_options
from trainer_service.config.run.stop import Duration
from trainer_service.config.section import Section
from trainer_service.config.values import Count, PositiveCount, Text
from trainer_service.errors import UserError
from trainer_service.running.runs.files import read_object, write_atomic
from trainer_service.running.training.stop_signals import StopSignals

if TYPE_CHECKING:
    from trainer_service.commands.search.study import SweepStudy

_LOOK_S = 0.5
"""Seconds between two looks at the summaries of running trials."""
_MOST_RESTARTS = 3
"""How often a run that was killed is resumed, before its trial counts as failed."""
_MOST_FAILURES = 3
"""Trials that fail before the first one succeeds, after which others would fail, too."""
_KEPT = {"seeds", "seed", "objective", "behavior", "direction"}
"""Settings that must not change during a sweep."""

_logger = logging.getLogger(__name__)


class SweepSettings(Section):
    """Settings of a sweep."""

    trials: PositiveCount = 20
    """Number of trials, all those of a resumed sweep together."""

    jobs: PositiveCount = 1
    """Trials at a time."""

    seeds: PositiveCount = 1
    """Runs of each trial, of different seeds, whose mean is the trial's score."""

    seed: Count | None = None
    """Seed of the first run of each trial, and of the sampler; the next runs count up. Null chooses one."""

    objective: Text | None = None
    """A key of metrics.jsonl or a tag of TensorBoard; null: the return."""

    behavior: Text | None = None
    """The behavior whose score counts; null: the mean of all."""

    direction: Direction = "maximize"
    """Whether large or small scores are good."""

    sampler: SamplerName = "tpe"
    """How values are drawn: by a model of the trials so far (TPE), or at random."""

    pruner: Pruner = "median"
    """Which trials end early."""

    total_steps: PositiveCount | None = None
    """Agent steps of all trials together after which no other begins."""

    wall_clock: Duration = None
    """Time after which the sweep ends; running trials are saved. It starts from 0 with every start."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep."""

    folder: Path
    objective: str
    """The name of the objective."""

    trials: tuple[TrialRecord, ...]
    best: TrialRecord | None = None
    """The trial with the best score; None before one was complete."""

    importances: Mapping[str, float] = field(default_factory=dict)
    """The share of each parameter in the differences of scores, largest first; empty where it is not known."""

    direction: Direction = "maximize"
    interrupted: bool = False
    """Whether a signal or the wall clock ended the sweep before its trials were done."""

    @property
    def best_file(self) -> Path | None:
        """The configuration of the best trial, which ``learn`` and ``train`` take."""
        return SweepFolder(self.folder).best if self.best else None

    @property
    def ranked(self) -> list[TrialRecord]:
        """The complete trials, the best first."""
        sign = -1.0 if self.direction == "maximize" else 1.0
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return sorted(complete, key=lambda trial: sign * (trial.score or 0.0))

    @property
    def best_values(self) -> Values:
        """The sampled values of the best trial by path; empty before one was complete."""
        return self.best.values if self.best else {}


def sample_trials(
    space: Space, configuration: Mapping[str, Any], settings: SweepSettings, name: str
) -> list[TrialRecord]:
    """The values that the first trials of a sweep would have, if no trial influenced another. Writes nothing."""
    require_optuna()
    from trainer_service.commands.search.study import SweepStudy

    require_valid(space, configuration, name)
    study = SweepStudy(
        None, space, direction="maximize", sampler="random", pruner="none", reports=0, seed=settings.seed or 0
    )
    return [study.ask() for _ in range(settings.trials)]


def run_sweep(
    space: Space,
    configuration: Mapping[str, Any],
    settings: SweepSettings,
    folder: Path,
    *,
    name: str,
    resume: bool,
    stop: StopSignals,
    place: Place | None = None,
) -> SweepResult:
    """Runs a sweep until its trials are done, or a limit or a signal ends it.

    Args:
        space: the parameters.
        configuration: what all trials have in common, nested as in a file.
        settings: of the sweep.
        folder: of its results.
        name: of the space in messages.
        resume: whether to continue the sweep in the folder. Its interrupted trials are resumed.
        stop: the stop request. Running trials are saved then.
        place: where trials run; None is this machine.

    Raises:
        UserError: something in the space, the settings or the folder cannot be used, or trials fail.
    """
    require_optuna()
    from trainer_service.commands.search.study import SweepStudy

    require_valid(space, configuration, name)
    options = parse_run_options(with_values(configuration, next(space.corners()))).options
    _require_own_simulators(options, settings.jobs)
    objective = objective_of(options, settings.objective, settings.behavior)
    files = SweepFolder(folder)
    with files.held(resume=resume), JobPool(settings.jobs, place) as pool:
        before = read_object(files.settings) if resume else None
        settings = _with_seed(settings, before)
        kept = {
            **settings.model_dump(include=_KEPT),
            "space": space.to_json(),
            "configuration": configuration,
        }
        _keep(files, kept, before)
        files.write_base(configuration)
        study = SweepStudy(
            files.journal,
            space,
            direction=settings.direction,
            sampler=settings.sampler,
            pruner=settings.pruner,
            reports=objective.reports,
            seed=settings.seed or 0,
        )
        sweep = _Sweep(settings, configuration, files, study, objective, pool, stop)
        sweep.run()
        states = {trial.state for trial in study.trials()}
        if states == {"failed"} and not sweep.interrupted:
            raise UserError(
                f"all {len(study.trials())} trials failed; the last one: {study.trials()[-1].message}"
            )
        return SweepResult(
            folder=folder,
            objective=objective.name,
            trials=tuple(study.trials()),
            best=study.best,
            importances=study.importances(),
            direction=settings.direction,
            interrupted=sweep.interrupted,
        )


@dataclass(slots=True)
class _RunningTrial:
    """A trial with a run in progress."""

    runs: TrialRuns
    index: int
    """Of the seed."""
    watch: RunWatch
    steps: int = 0
    restarts: int = 0
    pruned: bool = False


@dataclass(slots=True)
class _Sweep:
    """The loop of a sweep."""

    settings: SweepSettings
    configuration: Mapping[str, Any]
    files: SweepFolder
    study: SweepStudy
    objective: Objective
    pool: JobPool
    stop: StopSignals
    interrupted: bool = False
    _running: dict[str, _RunningTrial] = field(default_factory=dict)
    """By the name of the job."""
    _waiting: list[TrialRecord] = field(default_factory=list)
    """Interrupted trials that are to be resumed."""
    _started_s: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Runs trials until there is none to begin and none is running."""
        self._waiting.extend(self.study.interrupted())
        self.files.require_fewer(len(self.study.trials()))
        for trial in self.study.trials():
            self._runs(trial).require_values()
        while True:
            if self._must_stop():
                self.pool.stop_all()
            else:
                self._fill()
            if not self._running and (self.interrupted or not self._waiting):
                return
            self._look()
            for end in self.pool.wait(_LOOK_S):
                self._take(end)

    def _must_stop(self) -> bool:
        limit = self.settings.wall_clock
        if not self.interrupted and limit is not None and time.monotonic() - self._started_s >= limit:
            _logger.info("The sweep ends: wall_clock, %g s, is over. Running trials are saved.", limit)
            self.interrupted = True
        self.interrupted = self.interrupted or self.stop.requested
        return self.interrupted

    def _fill(self) -> None:
        """Begins trials while there is room."""
        while self.pool.has_room and (trial := self._next()) is not None:
            self._go_on(trial)

    def _next(self) -> TrialRecord | None:
        """The next trial to begin or resume; None where a limit is reached, or a killed sweep's run is still saved."""
        if self._waiting:
            saved = (trial for trial in self._waiting if not self._runs(trial).are_written())
            if (trial := next(saved, None)) is not None:
                self._waiting.remove(trial)
            return trial
        trials = self.study.trials()
        taken = sum(trial.steps for trial in trials) + sum(trial.steps for trial in self._running.values())
        if len(trials) >= self.settings.trials or taken >= (self.settings.total_steps or math.inf):
            return None
        return self.study.ask()

    def _go_on(self, trial: TrialRecord, restarts: int = 0) -> None:
        """Starts the next run of a trial, or ends the trial after its last one."""
        runs = self._runs(trial)
        index = runs.next_index()
        if index is None:
            self._complete(runs)
            return
        job = runs.job(index)
        _logger.info("Run %s begins. %s", job.name, short_text(trial.values))
        self._running[job.name] = _RunningTrial(runs, index, RunWatch(runs.path(index)), restarts=restarts)
        self.pool.start(job)

    def _runs(self, trial: TrialRecord) -> TrialRuns:
        first = self.settings.seed or 0
        return TrialRuns(self.files, trial, tuple(range(first, first + self.settings.seeds)))

    def _look(self) -> None:
        """Reports new values of trials, and prunes the worse trials."""
        for name, trial in self._running.items():
            run = trial.watch.news()
            if run is None or trial.pruned:
                continue
            trial.steps = trial.runs.steps()
            if trial.index > 0:
                continue  # it has survived its first run
            number = trial.runs.trial.number
            if any(self.study.report(number, at, value) for at, value in self.objective.values(run)):
                trial.pruned = True
                self.pool.stop(name)

    def _take(self, end: JobEnd) -> None:
        """Handles the end of a run."""
        trial = self._running.pop(end.job.name)
        record = trial.runs.trial
        ended = has_ended(trial.runs.path(trial.index))
        if trial.pruned:
            self.study.prune(record.number, trial.runs.steps())
            self._tell(record.number)
        elif ended and end.exit_code == 0:
            self._go_on(record)
        elif self._must_stop():
            return  # it continues when the sweep is resumed
        elif end.is_failed or trial.restarts >= _MOST_RESTARTS:
            self._fail(trial.runs, end.message or f"{end.job.name}: interrupted too often")
        else:
            _logger.warning("%s was interrupted; it is resumed.", end.job.name)
            self._go_on(record, trial.restarts + 1)

    def _complete(self, runs: TrialRuns) -> None:
        try:
            score = runs.score(self.objective)
        except UserError as error:
            self._fail(runs, str(error))
            return
        self.study.complete(runs.trial.number, score, runs.steps())
        best = self.study.best
        if best is not None and best.number == runs.trial.number:
            self.files.write_best(best, self.configuration, runs.seeds[0], self.objective.name)
        self._tell(runs.trial.number)

    def _fail(self, runs: TrialRuns, message: str) -> None:
        """Ends a trial without a score. Raises UserError where all of the first trials fail."""
        self.study.fail(runs.trial.number, runs.steps(), message)
        self._tell(runs.trial.number)
        states = [trial.state for trial in self.study.trials()]
        if {"complete", "pruned"}.isdisjoint(states) and states.count("failed") >= _MOST_FAILURES:
            raise UserError(f"the first {_MOST_FAILURES} trials failed; the last one: {message}")

    def _tell(self, number: int) -> None:
        """Logs the end of a trial."""
        trial, best = self.study.trials()[number], self.study.best
        score = "" if trial.score is None else f", {self.objective.name} {trial.score:.6g}"
        values = short_text(trial.values)
        than = f" (best {best.score:.6g} of trial {best.number})" if best is not None else ""
        reason = f": {trial.message}" if trial.message else ""
        _logger.info("Trial %d %s%s%s%s. %s", number, trial.state, score, than, reason, values)


def _require_own_simulators(options: RunOptions, jobs: int) -> None:
    """Raises UserError where trials would share a simulator or a port."""
    if options.env_settings.env_path is None:
        raise UserError("env_settings.env_path: each trial needs simulators of its own: set it (--env)")
    ports = {"env_settings.base_port": options.env_settings.base_port, "metrics_port": options.metrics_port}
    if taken := [key for key, port in ports.items() if port is not None and jobs > 1]:
        raise UserError(f"{taken[0]}: expected none, as {jobs} trials at a time cannot share a port")


def _with_seed(settings: SweepSettings, before: Mapping[str, Any] | None) -> SweepSettings:
    """The settings with a seed: the given one, that of the resumed sweep, or a new one."""
    if settings.seed is not None:
        return settings
    seed = random.randint(0, 9999) if before is None else before.get("seed")
    return settings.model_copy(update={"seed": seed if isinstance(seed, int) else 0})


def _keep(files: SweepFolder, kept: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    """Writes the settings that must not change during a sweep. Raises UserError if they have changed."""
    now = json.loads(json.dumps(kept, default=str))
    if changed := [key for key in now if before is not None and before.get(key) != now[key]]:
        raise UserError(
            f"'{files.path}': the sweep began with another {' and '.join(changed)}. Scores would not compare: resume "
            "it with the same, or begin another one with a new --run-id."
        )
    write_atomic(files.settings, json.dumps(now, indent=1) + "\n")
