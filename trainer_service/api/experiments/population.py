"""Population based training from a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from pydantic import ValidationError

from trainer_service.api.arguments import named
from trainer_service.api.configuration import Configuration
from trainer_service.api.environments import EnvironmentLike, environment_for
from trainer_service.api.experiments.runs import (
    SpaceLike,
    experiment_folder,
    place_of_jobs,
    require_experiment_arguments,
    runs_configuration,
)
from trainer_service.api.run_arguments import RunArguments
from trainer_service.api.train import stop_signals
from trainer_service.config.section import plain_message, root_errors
from trainer_service.errors import ConfigError
from trainer_service.experiments.population import BEST, Plan, run_population
from trainer_service.experiments.space import read_space
from trainer_service.metrics.console import Console
from trainer_service.training.stop_signals import StopSignals


@dataclass(frozen=True, slots=True)
class PopulationResult:
    """The result of a population."""

    folder: Path
    scores: tuple[float | None, ...]
    """The score of each member in the newest generation; None of a failed one."""

    interrupted: bool
    """Whether a signal stopped it before its members had used their budgets."""

    @property
    def best(self) -> Path | None:
        """The run of the best member; None before the population is trained."""
        return None if self.interrupted else self.folder / BEST

    @property
    def schedule(self) -> Path | None:
        """The schedule of the best member, for ``learn --schedule``; None before a generation ended."""
        path = self.folder / "schedule.yaml"
        return path if path.is_file() else None


def train_population(
    config: Configuration,
    space: SpaceLike,
    env: EnvironmentLike | None = None,
    *,
    interval: int,
    members: int = 8,
    jobs: int = 1,
    objective: str | None = None,
    games: int = 20,
    env_args: Sequence[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    verbose: int = 2,
    stop: StopSignals | None = None,
    **settings: Unpack[RunArguments],
) -> PopulationResult:
    """Trains a population, as ``mlagents-style population`` does: the worst members take over runs of the best.

    Each member is a run in a process of its own. It returns when the members have used their budgets, or a signal asked
    it to stop; ``resume=True`` continues the population from its newest generation.

    Args:
        config: the configuration of all members, see ``train``.
        space: the parameters that are searched, see docs/population.md.
        env: the environment, see ``train``; one that has a name.
        interval: agent steps of a generation, of the behavior that has most.
        members: number of members.
        jobs: members that train at a time.
        objective: a key of metrics.jsonl or a tag of TensorBoard; None is ratings by games under self-play, else the
            return.
        games: games of each pair of members for these ratings.
        env_args, env_kwargs: arguments of the environment, see ``train``.
        verbose: 0 shows nothing, 1 warnings, 2 a line for each generation.
        stop: signals that end the population, already entered; if None, it handles signals from the call on.
        settings: other arguments of ``train``. ``run_id`` names the population's folder (default ``population``);
            ``resume`` continues the population there; ``seed`` is that of all random choices.

    Raises:
        UserError: something in the space, the configuration or the folder cannot be used, or all members failed.
    """
    require_experiment_arguments(settings, "train_population")
    folder = experiment_folder(settings, "population")
    resume, seed = bool(settings.pop("resume", None)), settings.pop("seed", None)
    address, insecure = settings.pop("ray_address", None), bool(settings.pop("insecure_ray", None))
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    plan = _plan(
        members=members,
        interval=interval,
        seed=-1 if seed is None else seed,
        objective=objective,
        games=games,
        configuration=_as_in_json(runs_configuration(config, settings, environment)),
        space=read_space(space if isinstance(space, Mapping) else Path(space)).to_json(),
    )
    with ExitStack() as stack:
        stack.enter_context(Console(tty=False, verbose=verbose, stream=sys.stderr))
        population = run_population(
            plan,
            folder,
            resume=resume,
            jobs=jobs,
            stop=stop or stack.enter_context(stop_signals()),
            place=stack.enter_context(place_of_jobs(address, jobs, insecure=insecure)),
        )
    scores = tuple(member.score for member in population.generations[-1])
    return PopulationResult(folder, scores, interrupted=not population.complete)


train_population = named(train_population, RunArguments)


def _plan(**given: Any) -> Plan:
    """The settings of a population. Raises ConfigError with all mistakes."""
    try:
        return Plan(**given)
    except ValidationError as error:
        raise ConfigError(
            *(f"{'.'.join(map(str, each['loc']))}: {plain_message(each)}" for each in root_errors(error))
        ) from None


def _as_in_json(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is read from a file of JSON, so that the two are equal."""
    read: dict[str, Any] = json.loads(json.dumps(configuration, default=str))
    return read
