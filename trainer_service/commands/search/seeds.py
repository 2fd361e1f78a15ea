"""Training of one configuration with several seeds, each in a process of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from trainer_service.commands.common.command import require_at_least
from trainer_service.commands.common.configuration import Configuration, read_configuration
from trainer_service.commands.common.environments import environment_for
from trainer_service.commands.common.jobs import GRACE_S, JobEnd, run_jobs
from trainer_service.commands.common.run_arguments import SETTINGS, RunArguments
from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.common.settings import named, nested, require_known
from trainer_service.commands.search.seed_runs import (
    SeedRun,
    arguments_of_run,
    parse_seeds,
    plan_seeds,
    require_seedable,
    require_seeds,
)
from trainer_service.commands.status.run_status import ITS_BUDGET, Ending, run_status
from trainer_service.commands.train.run import Outcome
from trainer_service.commands.train.train import stop_signals
from trainer_service.config import RunOptions, dump_run_options
from trainer_service.errors import UserError
from trainer_service.running.metrics.console import Console
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.layout import RunLayout
from trainer_service.running.runs.lock import await_release, is_locked
from trainer_service.running.training.stop_signals import StopSignals
from unity_bridge.programs.cores import usable_cores

_OWN = frozenset({"run_id", "seed", "base_port", "metrics_port", "resume", "force", "env_args"})
"""Settings that every run has its own of, and the arguments that end a command line."""

_logger = logging.getLogger(__name__)


def train_seeds(
    config: Configuration = None,
    env: str | None = None,
    *,
    seeds: Sequence[int] | str,
    jobs: int | None = None,
    env_args: Sequence[str] | None = None,
    verbose: int = 2,
    **settings: Unpack[RunArguments],
) -> dict[int, Outcome]:
    """Trains one configuration with several seeds, as ``mlagents-style learn --seeds`` does.

    Every run is a process of its own, and has a folder of its own, ``RUN_ID-SEED``. Ctrl-C and SIGTERM let all of them
    save. ``resume=True`` then skips the finished runs, resumes the begun ones and starts the others.

    Args:
        config: as for ``train``. A dictionary or ``RunOptions`` is written to ``RUN_ID.yaml`` in the results folder.
        env: a value of ``--env``, or an id that is registered with Gymnasium; None leaves it to the configuration.
            Objects cannot be sent to the processes: name a function that makes them, ``"gym:MODULE:FUNCTION"``.
        seeds: the seeds, such as ``range(1, 6)`` or ``"1-5"``.
        jobs: runs at a time, which share the cores; None is half the number of cores.
        env_args: arguments for each simulator, as after ``--env-args``.
        verbose: 0 shows nothing, 1 warnings only, 2 everything.
        settings: as for ``train``, but for ``seed``.

    Returns:
        The outcome of each seed, including the runs that were finished already. Stopped runs are ``interrupted``.

    Raises:
        UserError: something in the arguments cannot be used, or a run failed; the others continue to their ends first.
        TypeError: an argument that is not known.
    """
    require_known(settings, RunArguments.__annotations__, "train_seeds")
    if env is not None and not isinstance(env, str):
        raise UserError(f"env: expected a name such as 'gym:MODULE:FUNCTION', got {type(env).__name__}")
    env_path = environment_for(env).env_path
    given = {**settings, "env_path": env_path, "env_args": env_args}
    loaded = read_configuration(config, nested(given, SETTINGS))
    chosen = parse_seeds(seeds) if isinstance(seeds, str) else require_seeds([*seeds])
    with ExitStack() as stack:
        stack.enter_context(Console(tty=False, verbose=verbose, log_format=loaded.options.log_format))
        stop = stack.enter_context(stop_signals())
        loaded.log(_logger)
        line = [*_configuration_argument(config, loaded.options), *shared_flags(given)]
        runs, ends = run_seeds(
            loaded.options, chosen, line, env_args=env_args, jobs=jobs, stop=stop, given=settings
        )
    if failures := [end.message for end in ends if end.message]:
        raise UserError("\n".join(failures))
    return {run.seed: _outcome(run, loaded.options) for run in runs}


train_seeds = named(train_seeds, RunArguments)


def run_seeds(
    options: RunOptions,
    seeds: Sequence[int],
    line: Sequence[str],
    *,
    env_args: Sequence[str] | None,
    jobs: int | None,
    stop: StopSignals,
    given: Mapping[str, Any],
    on_look: Callable[[Sequence[SeedRun], Sequence[str], Sequence[JobEnd]], None] = lambda *seen: None,
) -> tuple[list[SeedRun], list[JobEnd]]:
    """Runs all seeds that have not finished.

    Args:
        options: of all runs.
        seeds: the seeds.
        line: the arguments of ``learn`` that all runs share, without ``--env-args``.
        env_args: the arguments of the simulators.
        jobs: runs at a time; None is half the number of cores.
        stop: signals that ask all runs to save and end.
        given: settings that were given beside the configuration.
        on_look: called a few times a second with all runs, the ids of the running ones, and the ends so far.

    Returns:
        All runs, and the ends of the started runs.

    Raises:
        UserError: something in the options cannot be used.
    """
    if (given.get("seed") or -1) >= 0:
        raise UserError(f"--seed {given['seed']}: expected --seed or --seeds, got both")
    require_seedable(options)
    require_at_least(1, **{"--jobs": jobs})
    if options.checkpoint_settings.resume:
        _await_savers(options, seeds, stop)
    runs = plan_seeds(options, seeds, lambda folder: is_finished(folder, options))
    for run in runs:
        if run.action == "skip":
            _logger.info("%s has finished.", run.run_id)
    due = [run for run in runs if run.action != "skip"]
    after = ["--env-args", *env_args] if env_args else []
    limit = min(jobs or max(usable_cores() // 2, 1), max(len(due), 1))
    seen: set[str] = set()
    own = partial(
        arguments_of_run,
        options=options,
        file_resumes=bool(options.checkpoint_settings.resume) and not given.get("resume"),
    )

    def look(running: Sequence[str], ends: Sequence[JobEnd]) -> None:
        _log_changes(due, options, running, ends, seen)
        on_look(runs, running, ends)

    ends = run_jobs(
        (run.job(["learn", *line, *own(run), *after]) for run in due),
        limit,
        stop=stop,
        on_look=look,
    )
    return runs, ends


def shared_flags(given: Mapping[str, Any]) -> list[str]:
    """The flags of ``learn`` that all runs share. given: values by setting; None leaves a setting as it is."""
    flags: list[str] = []
    for name, setting in SETTINGS.items():
        value = given.get(name)
        if value is None or name in _OWN:
            continue
        if value is True:
            flags.append(setting.flag)
        elif setting.kind == "bool":
            flags.append(f"--set={setting.path}={str(value).lower()}")
        elif isinstance(value, str) or not isinstance(value, Sequence):
            flags.append(f"{setting.flag}={value}")
        else:
            flags += [f"{setting.flag}={each}" for each in value]
    return flags


def is_finished(folder: Path, options: RunOptions) -> bool:
    """Whether a run has ended by its budget or a stop rule, and the options allow no more than it was allowed."""
    record = read_run(folder)
    status = run_status(record)
    if status.ending not in (Ending.FINISHED, Ending.STOPPED) or status.metadata.get("end") != "finished":
        return False
    before = (record.options or {}).get("max_env_steps")
    if not status.ended_by.startswith(f"{ITS_BUDGET},") and options.max_env_steps != before:
        return False
    return all(
        progress.max_steps is not None and options.behavior_settings(name).max_steps <= progress.max_steps
        for name, progress in status.behaviors.items()
    )


def _await_savers(options: RunOptions, seeds: Sequence[int], stop: StopSignals) -> None:
    """Waits for runs whose parent was killed just before, and that still save."""
    saved = options.checkpoint_settings
    deadline = time.monotonic() + GRACE_S
    for seed in seeds:
        layout = RunLayout(Path(saved.results_dir) / f"{saved.run_id}-{seed}")
        if is_locked(layout.lock):
            _logger.info("%s is being written by another process: waiting for its end.", layout.path.name)
            await_release(layout.lock, deadline - time.monotonic(), lambda: stop.requested)


def _log_changes(
    runs: Sequence[SeedRun],
    options: RunOptions,
    running: Sequence[str],
    ends: Sequence[JobEnd],
    seen: set[str],
) -> None:
    """Logs the starts and ends since the last call. seen: what was logged."""
    for run in runs:
        if run.run_id in running and run.run_id not in seen:
            seen.add(run.run_id)
            verb = "resumed" if run.action == "resume" else "started"
            _logger.info("%s: %s with seed %d.", run.run_id, verb, run.seed)
    for end in ends:
        if (key := f"end of {end.job.name}") not in seen:
            seen.add(key)
            if end.message:
                _logger.error("%s", end.message)
            else:
                (folder,) = (run.folder for run in runs if run.run_id == end.job.name)
                finished = folder.is_dir() and is_finished(folder, options)
                _logger.info(
                    "%s: %s.", end.job.name, "finished" if finished else "stopped; --resume continues it"
                )


def _configuration_argument(config: Configuration, options: RunOptions) -> list[str]:
    """The configuration as an argument of ``learn``, in a file where it has none."""
    if config is None:
        return []
    if isinstance(config, RunOptions | Mapping):
        saved = options.checkpoint_settings
        path = Path(saved.results_dir) / f"{saved.run_id}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, dump_run_options(options))
        return [str(path)]
    return [str(config)]


def _outcome(run: SeedRun, options: RunOptions) -> Outcome:
    record = read_run(run.folder)
    steps = {name: progress.step for name, progress in run_status(record).behaviors.items()}
    return Outcome(run.folder, steps, not is_finished(run.folder, options))
