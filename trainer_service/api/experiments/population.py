"""Population based training from a program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from trainer_service.api.arguments import named
from trainer_service.api.configuration import Configuration
from trainer_service.api.environments import EnvironmentLike
from trainer_service.api.experiments.runs import Search, SpaceLike, valid
from trainer_service.api.run_arguments import RunArguments
from trainer_service.experiments.population import BEST, Plan, run_population
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
    search = Search(
        "train_population", "population", config, space, env,
        env_args=env_args, env_kwargs=env_kwargs, settings=settings,
    )  # fmt: skip
    plan = valid(
        Plan,
        members=members,
        interval=interval,
        seed=-1 if search.seed is None else search.seed,
        objective=objective,
        games=games,
        # As it is read from a file of JSON, so that the two are equal.
        configuration=json.loads(json.dumps(search.configuration, default=str)),
        space=search.space.to_json(),
    )
    with search.running(jobs, verbose, stop) as (signals, place):
        population = run_population(
            plan, search.folder, resume=search.resume, jobs=jobs, stop=signals, place=place
        )
    scores = tuple(member.score for member in population.generations[-1])
    return PopulationResult(search.folder, scores, interrupted=not population.complete)


train_population = named(train_population, RunArguments)
