"""Scores of a run's frozen policies on a simulator of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from trainer_service.commands.common.environments import Environment, EnvironmentLike, environment_for
from trainer_service.commands.common.trained_run import (
    EVALUATION_SEED,
    folder_of,
    load_policies,
    one_thread,
    options_of,
)
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.commands.play.films import FilmOptions
    from trainer_service.config import RunOptions
    from trainer_service.learning.rollout.episode_scores import EndedEpisode, Score
    from trainer_service.running.callbacks import SimulatorStep
    from trainer_service.running.evaluation.evaluate import PolicyActors
    from trainer_service.running.policy import Policy
    from trainer_service.running.runs.folder import RunFolder
    from unity_bridge.programs.executables import Command

# What is heavy is imported where it is needed: torch takes seconds.

_logger = logging.getLogger(__name__)


def evaluate(
    run: str | os.PathLike[str],
    env: EnvironmentLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
    episodes: int = 100,
    max_episode_steps: int | None = None,
    deterministic: bool = True,
    checkpoint: str = "last",
    seed: int = EVALUATION_SEED,
    device: str = "cpu",
    progress: Callable[[int, int], None] = lambda done, wanted: None,
) -> dict[str, Score]:
    """The scores of a run's policies, by behavior name: what ``mlagents-style evaluate`` prints.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training.
        env: where to play, as ``train`` takes it; None plays where the run was trained, with the arguments that the
            simulators had then.
        env_kwargs: arguments of the environment, as ``train`` takes them.
        env_args: arguments of the simulator, as after ``--env-args``.
        episodes: of each behavior, counted per agent.
        max_episode_steps: steps of an agent after which its episode is cut: it counts as truncated, with its return so
            far. ``Score.num_cut`` tells how many were. None for no limit.
        deterministic: the likeliest actions instead of drawn ones.
        checkpoint: ``last``, ``best`` (of the evaluations in the run), a step, or the path of a file.
        seed: of the simulator and of drawn actions.
        device: where the networks are: ``cpu``, ``cuda`` …
        progress: called with how many episodes of how many are done.

    Raises:
        UserError: no such run or checkpoint, nowhere to play, or an environment that the policies do not fit.
        BridgeError: the simulator failed.
    """
    folder = folder_of(run)
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    _, scores = evaluate_run(
        folder,
        environment,
        episodes=episodes,
        max_episode_steps=max_episode_steps,
        deterministic=deterministic,
        checkpoint=checkpoint,
        seed=seed,
        device=device,
        progress=progress,
    )
    return scores


class Playing(TypedDict, total=False):
    """Arguments of ``play_episodes`` that every kind of player has."""

    episodes: Required[int]
    max_episode_steps: int | None
    film: FilmOptions | None
    progress: Callable[[int, int], None]
    on_step: Callable[[str, SimulatorStep], None] | None
    on_episode: Callable[[str, EndedEpisode], None] | None


def evaluate_run(
    folder: RunFolder,
    environment: Environment,
    *,
    deterministic: bool,
    checkpoint: str = "last",
    seed: int = EVALUATION_SEED,
    device: str = "cpu",
    settings: Mapping[str, Any] | None = None,
    **playing: Unpack[Playing],
) -> tuple[dict[str, Policy], dict[str, Score]]:
    """The policies of a run and their scores, both by behavior name; see ``evaluate``.

    Args:
        folder: of the run.
        environment: the environment to play in. If it has none, the policies play in the environment of the training.
        deterministic, checkpoint, seed, device: as for ``evaluate``.
        settings: override the settings that the run was trained with, nested as in a file.
        playing: as for ``play_episodes``.
    """
    from trainer_service.running.evaluation.evaluate import PolicyActors
    from trainer_service.running.runs.status import read_lessons

    trained_with = options_of(folder, settings)
    policies: dict[str, Policy] = {}

    def load_actors() -> PolicyActors:
        policies.update(load_policies(folder.path, checkpoint, device=device, seed=seed))
        return PolicyActors(policies, deterministic=deterministic)

    command = environment.program(trained_with, folder.path.name)
    lessons = read_lessons(folder.status)
    return policies, play_episodes(trained_with, lessons, command, load_actors, seed=seed, **playing)


def play_episodes(
    options: RunOptions,
    lessons: Mapping[str, int],
    command: Command,
    load_actors: Callable[[], PolicyActors],
    *,
    episodes: int,
    seed: int,
    max_episode_steps: int | None = None,
    film: FilmOptions | None = None,
    progress: Callable[[int, int], None] = lambda done, wanted: None,
    on_step: Callable[[str, SimulatorStep], None] | None = None,
    on_episode: Callable[[str, EndedEpisode], None] | None = None,
) -> dict[str, Score]:
    """Scores of actors on a simulator of their own, by behavior name.

    Args:
        options, lessons: of the simulator; see ``EvaluationSimulator``.
        command: the program to start.
        load_actors: returns the actors; called while the simulator starts.
        episodes, seed, max_episode_steps, progress: as for ``evaluate``.
        film: a film to make of it; None for none.
        on_step, on_episode: see ``trainer_service.running.evaluation.evaluate.score``.

    Raises:
        UserError, BridgeError: as ``evaluate``.
    """
    from trainer_service.running.evaluation.evaluate import score
    from trainer_service.running.evaluation.loop import EpisodeLoop, require_limit
    from trainer_service.running.evaluation.simulator import RECORDING_GRACE_S, EvaluationSimulator

    if episodes < 1:
        raise UserError(f"--episodes: expected at least 1, got {episodes}")
    require_limit(max_episode_steps)
    if film is not None:
        command = film.filmed_by(command)
    simulator = EvaluationSimulator(options, command, seed, 3.0 if film is None else RECORDING_GRACE_S)
    for where in simulator.describe(lessons):
        _logger.info("%s", where)
    with ExitStack() as stack:
        bridge = stack.enter_context(simulator.open(lessons))
        stack.enter_context(one_thread())
        loop = EpisodeLoop(bridge, max_episode_steps, progress=progress)
        return score(loop, load_actors(), episodes=episodes, on_step=on_step, on_episode=on_episode)
