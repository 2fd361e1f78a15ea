"""Scores of frozen policies: of a run, or in an environment without a trainer of a random policy or an expert."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.environments import EnvironmentLike, environment_for
from trainer_service.commands.common.flags import EVALUATION_SEED
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.common.trained_run import folder_of
from trainer_service.commands.play.films import FilmOptions, filming
from trainer_service.commands.play.playing import Playing, play_episodes
from trainer_service.config import parse_player
from trainer_service.config.players import EXPERT, RANDOM
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.learning.rollout.episode_scores import EndedEpisode, Score

EPISODES = 5
"""How many episodes are played, unless a number is given."""


def evaluate(
    run: str | os.PathLike[str],
    env: EnvironmentLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
    episodes: int = 100,
    max_episode_steps: int | None = None,
    deterministic: bool = True,
    checkpoint: str | int = "last",
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


def play(
    env: Any,
    policy: str | os.PathLike[str] = RANDOM,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
    episodes: int = EPISODES,
    max_episode_steps: int | None = None,
    deterministic: bool = True,
    checkpoint: str | int = "last",
    seed: int = EVALUATION_SEED,
    device: str = "cpu",
    time_scale: float | None = None,
    no_graphics: bool | None = None,
    record: str | os.PathLike[str] | None = None,
    on_episode: Callable[[str, EndedEpisode], None] | None = None,
) -> dict[str, Score]:
    """Plays episodes of an environment without a trainer, as ``mlagents-style play`` does. Nothing is written.

    Args:
        env, env_kwargs, env_args: as for ``train``.
        policy: ``"random"``, ``"expert"`` (of a bundled scene), or a run as for ``evaluate``.
        episodes, max_episode_steps, deterministic, checkpoint, seed, device: as for ``evaluate``.
        time_scale, no_graphics: of a Unity build; None for the default, or for the values of the run's training.
        record: the path of a film: a .gif file, or an .mp4 file with the extra ``video``. It is of bundled
            environments only, and at most 30 s long.
        on_episode: called with the behavior's name and each counted episode when it ends.

    Returns:
        The scores by behavior name.

    Raises:
        UserError: no such run, no expert in that environment, or an environment that the policies do not fit.
        BridgeError: the simulator could not be started, or failed.
    """
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    named = (parse_player(policy),) if isinstance(policy, str) and policy in (RANDOM, EXPERT) else ()
    run = None if named else folder_of(policy)
    if environment.env_path is None:
        raise UserError("env: expected an environment to play, got none")
    if named and checkpoint != "last":
        raise UserError(f"checkpoint: not allowed for the player '{policy}'; only runs have checkpoints")
    playing = Playing(
        environment=environment,
        run=run,
        players=named,
        episodes=episodes,
        max_episode_steps=max_episode_steps,
        deterministic=deterministic,
        checkpoint=checkpoint,
        seed=seed,
        device=device,
        settings=nested({"time_scale": time_scale, "no_graphics": no_graphics}, SETTINGS),
        film=None if record is None else FilmOptions(Path(record)),
    )
    with filming(playing.film):
        return play_episodes(playing, on_episode=on_episode)[1]
