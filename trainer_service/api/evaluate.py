"""Scores of a run's frozen policies on a simulator of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from trainer_service.api.environments import Environment, environment_for
from trainer_service.api.trained_run import folder_of, load_policies, one_thread, options_of
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.api.films import FilmOptions
    from trainer_service.callbacks import SimulatorStep
    from trainer_service.policy import Policy
    from trainer_service.rollout.episode_scores import Score
    from trainer_service.runs.folder import RunFolder

# What is heavy is imported where it is needed: torch takes seconds.

EVALUATION_SEED = 20_000
"""The seed of the simulator and of drawn actions, unless another one is given: not one that was learned on."""

_logger = logging.getLogger(__name__)


def evaluate(
    run: str | os.PathLike[str],
    env: Any = None,
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
    _, scores = play(
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


def play(
    folder: RunFolder,
    environment: Environment,
    *,
    episodes: int,
    max_episode_steps: int | None = None,
    deterministic: bool,
    checkpoint: str = "last",
    seed: int = EVALUATION_SEED,
    device: str = "cpu",
    film: FilmOptions | None = None,
    progress: Callable[[int, int], None] = lambda done, wanted: None,
    on_step: Callable[[str, SimulatorStep], None] | None = None,
) -> tuple[dict[str, Policy], dict[str, Score]]:
    """The policies of a run and their scores, both by behavior name; see ``evaluate``.

    Args:
        folder: of the run.
        environment: where to play; where it leaves that open, on what the run was trained with.
        film: a film to make of it; None for none.
        on_step: see ``trainer_service.evaluation.evaluate``.
    """
    from trainer_service.evaluation.evaluate import evaluate as score
    from trainer_service.evaluation.loop import EpisodeLoop, require_limit
    from trainer_service.evaluation.simulator import RECORDING_GRACE_S, EvaluationSimulator
    from trainer_service.runs.status import read_lessons

    if episodes < 1:
        raise UserError(f"--episodes: expected at least 1, got {episodes}")
    require_limit(max_episode_steps)
    trained_with = options_of(folder)
    command = environment.program(trained_with, folder.path.name)
    if film is not None:
        command = film.filmed_by(command)
    simulator = EvaluationSimulator(trained_with, command, seed, 3.0 if film is None else RECORDING_GRACE_S)
    lessons = read_lessons(folder.status)
    for where in simulator.describe(lessons):
        _logger.info("%s", where)
    with ExitStack() as stack:
        bridge = stack.enter_context(simulator.open(lessons))
        stack.enter_context(one_thread())
        policies = load_policies(folder.path, checkpoint, device=device, seed=seed)
        scores = score(
            EpisodeLoop(bridge, max_episode_steps, progress=progress),
            policies,
            episodes=episodes,
            deterministic=deterministic,
            on_step=on_step,
        )
    return policies, scores
