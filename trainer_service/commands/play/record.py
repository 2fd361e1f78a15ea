"""Films of a run's policies."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.environments import EnvironmentLike, environment_for
from trainer_service.commands.common.flags import EVALUATION_SEED
from trainer_service.commands.common.trained_run import folder_of
from trainer_service.commands.play.films import FilmOptions, filming
from trainer_service.commands.play.playing import Playing, play_episodes
from trainer_service.running.evaluation.loop import PlayStopped

if TYPE_CHECKING:
    from trainer_service.running.callbacks import SimulatorStep


def record(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    env: EnvironmentLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
    episodes: int = 1,
    seconds: float | None = None,
    max_episode_steps: int | None = None,
    deterministic: bool = True,
    checkpoint: str | int = "last",
    seed: int = EVALUATION_SEED,
    device: str = "cpu",
) -> Path:
    """Films a run's policies in a bundled environment, as ``mlagents-style evaluate --record`` does.

    Args:
        run, env, env_kwargs, env_args, max_episode_steps, deterministic, checkpoint, seed, device: as for ``evaluate``.
        path: a .gif file, or an .mp4 file with the extra ``video``.
        episodes: how many of the first agent.
        seconds: how long the film may be, in the environment's own time; None for 30.

    Returns:
        The file.

    Raises:
        UserError: as ``evaluate``; or nothing that is bundled with us runs there, or the film cannot be written.
        BridgeError: the simulator failed.
    """
    film = FilmOptions(Path(path), episodes, seconds)
    first = _FirstAgent(episodes)
    playing = Playing(
        run=folder_of(run),
        environment=environment_for(env, env_kwargs=env_kwargs, env_args=env_args),
        episodes=_MORE_THAN_ANY,
        max_episode_steps=max_episode_steps,
        deterministic=deterministic,
        checkpoint=checkpoint,
        seed=seed,
        device=device,
        film=film,
    )
    with filming(film):
        play_episodes(playing, on_step=first.observe)
    return film.path


_MORE_THAN_ANY = 100_000
"""Episodes, for playing until the film's are over."""


class _FirstAgent:
    """The first agent that asks for an action; the film is of its episodes."""

    def __init__(self, episodes: int) -> None:
        """episodes: how many it plays."""
        self._left = episodes
        self._agent: tuple[str, int, int] | None = None
        """Behavior, team and id."""

    def observe(self, behavior: str, step: SimulatorStep) -> None:
        """Counts its ends. Raises PlayStopped at the last one."""
        ids, ends = step.batch.agent_ids, step.batch.num_terminal
        if self._agent is None and ends < len(ids):
            self._agent = (behavior, step.team, int(ids[ends]))
        if self._agent is not None and self._agent[:2] == (behavior, step.team):
            self._left -= int((ids[:ends] == self._agent[2]).sum())
        if self._left <= 0:
            raise PlayStopped
