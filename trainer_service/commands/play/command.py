"""The command ``play``: an environment without a trainer."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.output import say, say_json, score_lines
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.play.film_flag import film_of
from trainer_service.config import PlayerName, parse_player
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.learning.rollout.episode_scores import EndedEpisode
    from trainer_service.running.runs.folder import RunFolder

# What is heavy is imported where it is needed: torch takes seconds.


def play(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style play ENV``. Returns the exit code.

    Raises:
        UserError: something in the flags cannot be done.
        LaunchError: there is no such environment.
        BridgeError: the simulator failed.
    """
    from trainer_service.commands.common.environments import environment_for
    from trainer_service.commands.play.play import play_player
    from trainer_service.running.metrics.console import Console

    player, checkpoint = _player(parsed)
    played: dict[str, list[dict[str, Any]]] = {}

    def show(behavior: str, episode: EndedEpisode) -> None:
        played.setdefault(behavior, []).append(episode.to_json())
        if not parsed.json:
            say(_episode_text(behavior, episode))

    # Everything on the way goes to standard error: standard output is for the result.
    with film_of(parsed) as film, Console(tty=False, stream=sys.stderr):
        scores = play_player(
            player,
            environment_for(parsed.env, env_args=parsed.env_args),
            deterministic=not parsed.stochastic,
            checkpoint=checkpoint,
            seed=parsed.seed,
            device=parsed.torch_device,
            settings=nested(vars(parsed), _ENGINE),
            episodes=parsed.episodes,
            max_episode_steps=parsed.max_episode_steps,
            film=film,
            on_episode=show,
        )
    results = {name: score.to_json() for name, score in scores.items()}
    if parsed.json:
        of_all = {name: {**result, "played": played.get(name, [])} for name, result in results.items()}
        say_json({"env": parsed.env, "policy": parsed.policy, "behaviors": of_all})
        return 0
    for name, result in results.items():
        say("\n".join(score_lines(name, result)))
    return 0


_ENGINE = {name: SETTINGS[name] for name in ("time_scale", "no_graphics")}


def _player(parsed: argparse.Namespace) -> tuple[RunFolder | PlayerName, str]:
    """The player and which checkpoint of it. Raises UserError where there is no such run."""
    from trainer_service.running.runs.folder import RunFolder

    name = parse_player(parsed.policy)
    if name.run_id is not None:
        try:
            return RunFolder.read(parsed.results_dir, name.run_id), name.which
        except UserError as error:
            raise UserError(f"--policy: expected random, expert or a run, but {error}") from None
    if parsed.stochastic and not name.is_file:
        raise UserError(f"--stochastic: of no use for '{name.text}'; it is for the policy of a run")
    return name, "last"


def _episode_text(behavior: str, episode: EndedEpisode) -> str:
    outcome = "time limit" if episode.truncated else "terminated"
    return (
        f"{behavior}, episode {episode.number}: return {episode.episode_return:.3f}, length {episode.length}, "
        f"{'cut at the limit of steps' if episode.cut else outcome}"
    )
