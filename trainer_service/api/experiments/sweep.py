"""Sweeps of hyperparameters from a program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from trainer_service.api.arguments import named
from trainer_service.api.configuration import Configuration
from trainer_service.api.environments import EnvironmentLike
from trainer_service.api.experiments.runs import Search, SpaceLike, valid
from trainer_service.api.run_arguments import RunArguments
from trainer_service.experiments.sweep import SweepResult, SweepSettings, run_sweep, sample_trials
from trainer_service.training.stop_signals import StopSignals


def sweep(
    config: Configuration,
    space: SpaceLike,
    env: EnvironmentLike | None = None,
    *,
    trials: int = 20,
    jobs: int = 1,
    seeds: int = 1,
    objective: str | None = None,
    behavior: str | None = None,
    direction: str = "maximize",
    sampler: str = "tpe",
    pruner: str = "median",
    total_steps: int | None = None,
    wall_clock: float | str | None = None,
    env_args: Sequence[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    verbose: int = 2,
    stop: StopSignals | None = None,
    **settings: Unpack[RunArguments],
) -> SweepResult:
    """Searches hyperparameters, as ``mlagents-style sweep`` does. Needs Optuna.

    Each trial is a run in a process of its own. It returns when the trials are done, a limit is reached, or a signal
    asked it to stop; running trials are saved then, and ``resume=True`` continues the sweep.

    Args:
        config: the configuration of all trials, see ``train``.
        space: the parameters to search, see docs/sweeps.md.
        env: the environment, see ``train``; one that has a name.
        trials: number of trials, with those of a resumed sweep.
        jobs: trials at a time.
        seeds: runs of each trial, whose mean is its score.
        objective: a key of metrics.jsonl or a tag of TensorBoard; None is the return.
        behavior: the behavior whose score counts; None is the mean of all.
        direction: ``maximize`` or ``minimize``.
        sampler: ``tpe`` or ``random``.
        pruner: ``median``, ``hyperband`` or ``none``.
        total_steps: agent steps of all trials together after which no other begins.
        wall_clock: seconds, or a text such as ``2h``, after which running trials are saved and the sweep ends.
        env_args, env_kwargs: arguments of the environment, see ``train``.
        dry_run: whether to return the trials that a sweep begins with, without running any.
        verbose: 0 shows nothing, 1 warnings, 2 a line for each trial.
        stop: signals that end the sweep, already entered; if None, it handles signals from the call on.
        settings: other arguments of ``train``. ``run_id`` names the sweep's folder (default ``sweep``); ``resume``
            continues the sweep there; ``seed`` is that of the sampler and of each trial's first run; ``ray_address``
            is a Ray cluster that runs the trials.

    Raises:
        UserError: something in the space, the configuration or the folder cannot be used, or trials fail.
    """
    search = Search(
        "sweep", "sweep", config, space, env, env_args=env_args, env_kwargs=env_kwargs, settings=settings
    )
    options = valid(
        SweepSettings, trials=trials, jobs=jobs, seeds=seeds, seed=search.seed, objective=objective,
        behavior=behavior, direction=direction, sampler=sampler, pruner=pruner, total_steps=total_steps,
        wall_clock=wall_clock,
    )  # fmt: skip
    name = "space" if isinstance(space, Mapping) else os.fspath(space)
    if dry_run:
        sampled = sample_trials(search.space, search.configuration, options, name)
        return SweepResult(folder=search.folder, objective="", trials=tuple(sampled))
    with search.running(options.jobs, verbose, stop) as (signals, place):
        return run_sweep(
            search.space, search.configuration, options, search.folder,
            name=name, resume=search.resume, stop=signals, place=place,
        )  # fmt: skip


sweep = named(sweep, RunArguments)
