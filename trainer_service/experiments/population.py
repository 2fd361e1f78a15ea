"""A population in its folder: members are runs, and each generation forks the runs of the one before it."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field, ValidationError

from trainer_service.analysis.run_record import RunRecord, read_run
from trainer_service.config import RunOptions, TrainerSettings, parse_run_options
from trainer_service.config.changes import changed_networks
from trainer_service.config.reading.document import dump_document
from trainer_service.config.section import Section, plain_message
from trainer_service.config.values import PositiveCount, Seed, Text
from trainer_service.errors import ConfigError, UserError
from trainer_service.experiments.evolution import (
    Generation,
    first_generation,
    lineage,
    next_generation,
    ranking,
    segments_of,
)
from trainer_service.experiments.folder import held_folder, require_own_simulators
from trainer_service.experiments.fork import fork_run
from trainer_service.experiments.jobs import GRACE_S, Job, JobEnd, Place, run_jobs
from trainer_service.experiments.matches import cross_play, ratings
from trainer_service.experiments.objective import Objective, objective_of
from trainer_service.experiments.schedule import dump_schedule, saved_step
from trainer_service.experiments.space import Space, read_space, require_valid, short_text, with_values
from trainer_service.experiments.trial_runs import has_ended
from trainer_service.runs.files import read_object, write_atomic
from trainer_service.runs.layout import RunLayout
from trainer_service.runs.lock import await_release
from trainer_service.training.stop_signals import StopSignals

STATE = "population.json"
BEST = "best"
"""Run id of the copy of the best member."""
_TRIES = 3
"""How often a segment is trained whose process a signal ended."""

_logger = logging.getLogger(__name__)


class Plan(Section):
    """The settings of a population, which do not change while it is trained."""

    members: PositiveCount
    interval: PositiveCount
    """Agent steps of a generation, of the behavior that has most."""

    seed: Seed
    objective: Text | None
    """The metric that is compared; null: ratings by games under self-play, else the mean return."""

    games: PositiveCount
    """Games of each pair of members for these ratings."""

    configuration: dict[str, Any]
    """Nested as in its file."""

    space: dict[str, Any]
    """Parameters by path, as in their file."""

    @cached_property
    def options(self) -> RunOptions:
        """The configuration of a run."""
        return parse_run_options(self.configuration).options

    @cached_property
    def parameters(self) -> Space:
        """The space of values."""
        return read_space(self.space)

    @property
    def max_steps(self) -> int:
        """The largest budget of a behavior."""
        return max(settings.max_steps for settings in _settings_of(self.options))

    @property
    def ends(self) -> list[int | None]:
        """The step where each generation ends; None for the last, which uses the budgets up."""
        return [*range(self.interval, self.max_steps, self.interval), None]

    @cached_property
    def objective_of_runs(self) -> Objective:
        """The metric that is compared where there are no games."""
        return objective_of(self.options, self.objective, None)

    @property
    def plays_games(self) -> bool:
        """Whether members are compared in games against each other."""
        return self.objective is None and any(
            settings.self_play is not None for settings in _settings_of(self.options)
        )

    def with_seed(self, low: int, high: int) -> Plan:
        """The plan with a random seed between two numbers if it leaves that open."""
        return self if self.seed >= 0 else self.model_copy(update={"seed": random.randint(low, high)})

    def require_valid(self) -> None:
        """Checks the configuration with values of the space.

        Raises:
            ConfigError: values are refused, or runs could not resume each other's checkpoints with them.
        """
        require_valid(self.parameters, self.configuration, "space")
        if self.members < 2:
            raise ConfigError(f"--members: expected at least 2, got {self.members}")
        if self.interval >= self.max_steps:
            raise ConfigError(
                f"--interval: expected fewer steps than max_steps, {self.max_steps}, got {self.interval}"
            )
        if self.interval < (longest := self.objective_of_runs.interval):
            raise ConfigError(
                f"--interval: expected at least the {longest} steps between two scores of a run, got {self.interval}"
            )
        problems: dict[str, None] = {}
        for values in self.parameters.corners():
            options = parse_run_options(with_values(self.configuration, values)).options
            problems |= dict.fromkeys(_unforkable(self.options, options))
        if problems:
            raise ConfigError(*problems)


class _State(Section):
    """The content of ``population.json``."""

    plan: Plan
    generations: Annotated[list[Generation], Field(min_length=1)]


class Population:
    """A population in its folder, in which one process works at a time.

    ::

        <results-dir>/<run-id>/
          configuration.yaml        the configuration of all members
          population.json           every generation: sources, seeds, values, scores
          schedule.yaml             what the best member so far lived through, for ``learn --schedule``
          generation-<n>/member-<m>/        its run; those of older generations are removed
          generation-<n>/member-<m>.yaml    its schedule
          best/                     the run of the best member, once all are trained

    A generation is trained in forks of the runs of the one before it, which stay untouched meanwhile. So a member that
    was not trained to its end is forked anew, whatever ended it.
    """

    def __init__(self, folder: Path, plan: Plan, generations: list[Generation] | None = None) -> None:
        """generations: the trained generations of a population; None for a new population."""
        self.folder = folder
        self.plan = plan
        self.generations = generations or [first_generation(plan.parameters, plan.members, plan.seed)]
        self._failure = ""
        """How the last failed member ended."""

    @classmethod
    def read(cls, folder: Path) -> Population:
        """Reads a population. Raises UserError where there is none, or its file is damaged."""
        path = folder / STATE
        if not path.is_file():
            raise UserError(f"no population in '{folder}'. Remove --resume to train a new one.")
        try:
            state = _State.model_validate(read_object(path))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(f"cannot read '{path}': {where}: {plain_message(first)}") from None
        *before, newest = state.generations
        if all(member.score is None for member in newest):  # what made all fail may be mended now
            newest = [member.model_copy(update={"ended": False}) for member in newest]
        return cls(folder, state.plan, [*before, newest])

    def require_plan(self, plan: Plan) -> None:
        """Raises UserError where the population was begun with another plan."""
        own, given = self.plan.model_dump(), plan.with_seed(self.plan.seed, self.plan.seed).model_dump()
        if changed := [key for key in own if own[key] != given[key]]:
            raise UserError(
                f"'{self.folder}': the population began with another {' and '.join(changed)}. Resume it with the same, "
                "or begin another one with a new --run-id."
            )

    @property
    def complete(self) -> bool:
        """Whether all generations are trained."""
        newest, end = self.generations[-1], self._end
        if not all(member.ended for member in newest):
            return False
        return end is None or all(member.step < end for member in newest)

    @property
    def best(self) -> int:
        """Index of the best member of the newest generation that is trained. Raises UserError without scores."""
        return ranking([member.score for member in self.generations[-1]])[-1]

    def train(self, jobs: int, stop: StopSignals, *, place: Place | None = None) -> bool:
        """Trains the generations that are left. Returns whether it is complete, not stopped by a request before.

        Raises:
            UserError: every member failed, or none has a score.
        """
        self._save()
        write_atomic(self.folder / "configuration.yaml", dump_document(self.plan.configuration))
        while True:
            self._remove_older_generations()
            self._train_generation(jobs, stop, place)
            if not all(member.ended for member in self.generations[-1]):
                return False
            if self._failure and all(member.score is None for member in self.generations[-1]):
                raise UserError(f"population: all members failed. {self._failure}")
            if self.plan.plays_games and not self._rate(jobs, stop, place):
                return False
            write_atomic(self.folder / "schedule.yaml", self.schedule_text(self.best))
            if self.complete:
                break
            self.generations.append(next_generation(self.plan.parameters, self.generations, self.plan.seed))
            self._save()
            self._log_forks()
        fork_run(self.run(self.best), self.folder / BEST, same_run=True)
        return True

    def run(self, member: int, generation: int = -1) -> Path:
        """The folder of a member's run."""
        number = generation % len(self.generations)
        return self.folder / f"generation-{number + 1}" / run_id(member)

    def schedule_text(self, member: int) -> str:
        """The schedule of a member of the newest generation, as YAML."""
        line = lineage(self.generations, member)
        return dump_schedule(segments_of(line, self.plan.ends))

    @property
    def _end(self) -> int | None:
        return self.plan.ends[len(self.generations) - 1]

    def _save(self) -> None:
        state = _State(plan=self.plan, generations=self.generations)
        text = json.dumps(state.model_dump(mode="json"), indent=1)
        write_atomic(self.folder / STATE, text + "\n")

    def _remove_older_generations(self) -> None:
        """Removes the runs that nothing descends from any more by itself: all but those of the last two generations."""
        for number in range(1, len(self.generations) - 1):
            shutil.rmtree(self.folder / f"generation-{number}", ignore_errors=True)

    def _train_generation(self, jobs: int, stop: StopSignals, place: Place | None) -> None:
        """Trains the members that are not trained yet."""
        newest = self.generations[-1]
        taken = 0

        def look(running: Iterable[str], ends: Sequence[JobEnd]) -> None:
            nonlocal taken
            for end in ends[taken:]:
                self._take(end)
            taken = len(ends)

        for attempt in range(_TRIES):
            left = [index for index, member in enumerate(newest) if not member.ended]
            if not left or stop.requested:
                return
            if attempt:
                _logger.warning(
                    "Trained once more from the last generation: %s.", ", ".join(map(run_id, left))
                )
            taken = 0
            run_jobs([self._job(index) for index in left], jobs, stop=stop, place=place, on_look=look)
        if not stop.requested and (left := [index for index, each in enumerate(newest) if not each.ended]):
            names = ", ".join(map(run_id, left))
            raise UserError(
                f"{names}: ended by a signal {_TRIES} times: see {RunLayout(self.run(left[0])).job_log}"
            )

    def _job(self, index: int) -> Job:
        """The training of a member, in a folder that is made anew."""
        member, run = self.generations[-1][index], self.run(index)
        # A killed population leaves runs that are asked to save, and end by themselves.
        if not await_release(RunLayout(run).lock, GRACE_S):
            raise UserError(f"'{run}' is in use by another process. Stop it, and resume the population.")
        if member.source is None:
            shutil.rmtree(run, ignore_errors=True)
        else:
            fork_run(self.run(member.source, -2), run, same_run=member.source == index)
            RunLayout(run).timers.unlink(missing_ok=True)  # they tell how the source ended
        schedule = run.with_suffix(".yaml")
        write_atomic(schedule, self.schedule_text(index))
        arguments = (
            "learn", str(self.folder / "configuration.yaml"), f"--run-id={run.name}",
            f"--results-dir={run.parent}", f"--schedule={schedule}", *(() if member.source is None else ("--resume",)),
        )  # fmt: skip
        return Job(run.name, arguments, RunLayout(run).job_log)

    def _take(self, end: JobEnd) -> None:
        """Remembers how the training of a member ended, unless it is to be repeated."""
        newest = self.generations[-1]
        index = next(number for number in range(len(newest)) if run_id(number) == end.job.name)
        layout = RunLayout(self.run(index))
        if not end.is_failed and not (end.exit_code == 0 and has_ended(layout.path)):
            return  # a signal ended it: it is forked and trained again
        score = None
        if not end.is_failed:
            score = segment_score(self.plan.objective_of_runs, read_run(layout.path), after=self._start)
        else:
            self._failure = end.message
            _logger.warning("%s", end.message)
        member = newest[index].model_copy(update={"ended": True, "step": saved_step(layout), "score": score})
        newest[index] = member
        self._save()
        result = "failed" if score is None else f"score {score:.6g} at step {member.step:,}"
        number, total = len(self.generations), len(self.plan.ends)
        _logger.info(
            "Generation %d of %d: %s %s. %s", number, total, run_id(index), result, short_text(member.values)
        )

    def _log_forks(self) -> None:
        for index, member in enumerate(self.generations[-1]):
            if member.source not in (None, index):
                source, values = run_id(member.source), short_text(member.values)
                _logger.info("%s takes over the run of %s. %s", run_id(index), source, values)

    @property
    def _start(self) -> int:
        """The step where the newest generation began."""
        return self.plan.ends[len(self.generations) - 2] or 0 if len(self.generations) > 1 else 0

    def _rate(self, jobs: int, stop: StopSignals, place: Place | None) -> bool:
        """Gives members their ratings in games against each other as scores. Returns whether it was done."""
        newest = self.generations[-1]
        players = [index for index, member in enumerate(newest) if member.score is not None]
        if len(players) < 2:
            return True
        runs = [run_id(index) for index in players]
        folder = self.run(players[0]).parent
        job = cross_play(runs, folder, self.plan.games)
        job.log.unlink(missing_ok=True)
        ends = run_jobs([job], jobs, stop=stop, place=place)
        if stop.requested or not ends:
            return False
        if ends[0].exit_code:
            raise UserError(ends[0].message)
        found = ratings(job.log.read_text(encoding="utf-8", errors="replace"))
        for index in players:
            newest[index] = newest[index].model_copy(update={"score": found[run_id(index)]})
        self._save()
        return True


def run_population(
    plan: Plan,
    folder: Path,
    *,
    resume: bool,
    jobs: int,
    stop: StopSignals,
    place: Place | None = None,
) -> Population:
    """Trains a population until its members have used their budgets, or a signal stops it.

    Args:
        plan: its settings. A resumed population has to have the same; -1 as the seed stands for any.
        folder: of the population.
        resume: whether to continue the population in the folder, from the newest generation.
        jobs: members that train at a time.
        stop: the stop request.
        place: where members train; None is this machine.

    Raises:
        UserError: something in the plan or the folder cannot be used, or all members failed.
    """
    plan.require_valid()
    require_own_simulators(plan.options, jobs, "member")
    with held_folder(folder, folder / STATE, "population", resume=resume):
        population = Population.read(folder) if resume else Population(folder, plan.with_seed(0, 9999))
        population.require_plan(plan)
        population.train(jobs, stop, place=place)
        return population


def run_id(member: int) -> str:
    """The run id of a member by its index."""
    return f"member-{member + 1}"


def segment_score(objective: Objective, run: RunRecord, *, after: int) -> float | None:
    """Returns the score of a run since a step: the mean of the objective in the later half of the values since then.

    Several behaviors count alike. None if a run has no value.
    """
    scores = []
    for curves in run.curves.values():
        curve = next((curves[name] for name in objective.metrics if name in curves), None)
        values = () if curve is None else curve.values[curve.steps > after].tolist()
        if values:
            scores.append(fmean(values[len(values) // 2 :]))
    return fmean(scores) if scores else None


def _settings_of(options: RunOptions) -> list[TrainerSettings]:
    """Returns the settings of all listed behaviors, and the default settings of unlisted ones."""
    defaults = [] if options.default_settings is None else [options.default_settings]
    return [*options.behaviors.values(), *defaults]


def _unforkable(options: RunOptions, changed: RunOptions) -> list[str]:
    """Describes the differences that keep a run from going on from the other's checkpoint."""
    problems: list[str] = []
    pairs = [(options.behavior_settings(name), now) for name, now in changed.behaviors.items()]
    if options.default_settings is not None and changed.default_settings is not None:
        pairs.append((options.default_settings, changed.default_settings))
    for before, now in pairs:
        differences = changed_networks(before, now)
        for key in ("trainer_type", "max_steps"):
            if getattr(before, key) != getattr(now, key):
                differences.append(f"{key} was {getattr(before, key)}, now {getattr(now, key)}")
        problems += [
            f"space: {each}: members take over each other's checkpoints and budgets; remove it from the space"
            for each in differences
        ]
    return problems
