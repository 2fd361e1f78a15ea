"""Scores of a run's frozen policies on a simulator of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.environments import EnvironmentLike, environment_for
from trainer_service.commands.common.trained_run import EVALUATION_SEED, folder_of
from trainer_service.commands.play.playing import Playing, play_episodes

if TYPE_CHECKING:
    from trainer_service.learning.rollout.episode_scores import Score


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
    playing = Playing(
        run=folder_of(run),
        environment=environment_for(env, env_kwargs=env_kwargs, env_args=env_args),
        episodes=episodes,
        max_episode_steps=max_episode_steps,
        deterministic=deterministic,
        checkpoint=checkpoint,
        seed=seed,
        device=device,
        progress=progress,
    )
    return play_episodes(playing)[1]
