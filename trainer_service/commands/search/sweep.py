"""Sweeps of hyperparameters from a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack

from pydantic import ValidationError

from trainer_service.commands.common.configuration import Configuration, configuration_values
from trainer_service.commands.common.environments import ChosenEnvironment, EnvironmentLike, environment_for
from trainer_service.commands.common.run_arguments import SETTINGS, RunArguments
from trainer_service.commands.common.settings import named, nested, require_known
from trainer_service.commands.search.space import read_space
from trainer_service.commands.search.trials import SweepResult, SweepSettings, run_sweep, sample_trials
from trainer_service.commands.train.train import stop_signals
from trainer_service.config import validate_run_id
from trainer_service.config.reading.document import dotted
from trainer_service.config.section import plain_message, root_errors
from trainer_service.errors import ConfigError, UserError
from trainer_service.running.metrics.console import Console
from trainer_service.running.training.stop_signals import StopSignals

SpaceLike = str | os.PathLike[str] | Mapping[str, Any]
"""The types of ``space``: the path of a file, or a mapping with the structure of one."""

_OF_ONE_RUN = {"force", "inference", "initialize_from"}
"""Arguments of ``train`` that a sweep does not have."""
_KNOWN = {name: kind for name, kind in RunArguments.__annotations__.items() if name not in _OF_ONE_RUN}
_OF_THE_SWEEP = ("results_dir", "run_id", "resume", "seed", "ray_address", "insecure_ray")
"""Arguments of ``train`` that are not those of its trials."""


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
    require_known(settings, _KNOWN, "sweep")
    of_trials: dict[str, Any] = {**settings}
    own = {name: of_trials.pop(name, None) for name in _OF_THE_SWEEP}
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    configuration = _configuration_of_trials(config, of_trials, environment)
    options = _sweep_settings(
        trials=trials, jobs=jobs, seeds=seeds, seed=own["seed"], objective=objective, behavior=behavior,
        direction=direction, sampler=sampler, pruner=pruner, total_steps=total_steps, wall_clock=wall_clock,
    )  # fmt: skip
    return _swept(space, configuration, options, own, dry_run=dry_run, verbose=verbose, stop=stop)


sweep = named(sweep, RunArguments)


def _swept(
    space: SpaceLike,
    configuration: Mapping[str, Any],
    options: SweepSettings,
    own: Mapping[str, Any],
    *,
    dry_run: bool,
    verbose: int,
    stop: StopSignals | None,
) -> SweepResult:
    """Runs a sweep, or only samples its trials. own: the arguments in ``_OF_THE_SWEEP``."""
    run_id = "sweep" if own["run_id"] is None else own["run_id"]
    validate_run_id(run_id)
    folder = Path("results" if own["results_dir"] is None else own["results_dir"]) / run_id
    parameters, name = read_space(space), "space" if isinstance(space, Mapping) else os.fspath(space)
    if dry_run:
        sampled = sample_trials(parameters, configuration, options, name)
        return SweepResult(folder=folder, objective="", trials=tuple(sampled))
    with ExitStack() as stack:
        stack.enter_context(Console(tty=False, verbose=verbose, stream=sys.stderr))
        stop = stop or stack.enter_context(stop_signals())
        place, address, resume = None, own["ray_address"], bool(own["resume"])
        if address is not None:
            from trainer_service.commands.search.ray_jobs import ray_place

            place = stack.enter_context(ray_place(address, options.jobs, insecure=bool(own["insecure_ray"])))
        return run_sweep(
            parameters, configuration, options, folder, name=name, resume=resume, stop=stop, place=place
        )


def _sweep_settings(**given: Any) -> SweepSettings:
    """Returns the settings of a sweep. Raises ConfigError with all mistakes."""
    try:
        return SweepSettings(**given)
    except ValidationError as error:
        mistakes = [f"{dotted(each['loc'])}: {plain_message(each)}" for each in root_errors(error)]
        raise ConfigError(*mistakes) from None


def _configuration_of_trials(
    config: Configuration, settings: Mapping[str, Any], environment: ChosenEnvironment
) -> dict[str, Any]:
    """The configuration of all trials, nested as in a file: with the environment, and without what names one run.

    Raises:
        UserError: it cannot be used, or the environment is an object of this process.
    """
    if environment.given is not None:
        raise UserError(
            f"env: runs are trained in other processes, and '{environment.given.env}' is an object of this one: give "
            "it a name (gym:MODULE:FUNCTION)"
        )
    overrides = nested({**settings, "env_path": environment.env_path}, SETTINGS)
    configuration = configuration_values(config, overrides)
    saved = configuration.get("checkpoint_settings") or {}
    simulators = dict(configuration.get("env_settings") or {})
    if environment.env_args is not None or environment.env_kwargs is not None:
        simulators["env_args"] = [*environment.arguments(simulators.get("env_args"))]
    others = {key: value for key, value in configuration.items() if key != "checkpoint_settings"}
    kept = {key: value for key, value in saved.items() if key == "autosave_interval_s"}
    return {**others, "env_settings": simulators, **({"checkpoint_settings": kept} if kept else {})}
