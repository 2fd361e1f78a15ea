"""The commands ``evaluate`` and ``play``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.output import (
    progress_printer,
    say,
    say_json,
    say_result,
    score_lines,
)
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.play.flags import playing_of
from trainer_service.commands.play.playing import play_episodes
from trainer_service.config import parse_player
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.learning.rollout.episode_scores import EndedEpisode

# What is heavy is imported where it is needed: torch takes seconds.


def evaluate(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style evaluate RUN_ID``. Returns the exit code.

    Raises:
        UserError: something in the flags cannot be done.
        LaunchError: there is no such environment.
        BridgeError: the simulator failed.
    """
    from trainer_service.running.runs.folder import RunFolder

    if parsed.against is not None:
        from trainer_service.commands.play.matches import play_matches

        return play_matches(parsed)
    run_id, checkpoint = _run_alone(parsed)
    run = RunFolder.read(parsed.results_dir, run_id)
    with playing_of(parsed, run=run, checkpoint=checkpoint, progress=progress_printer()) as playing:
        player, scores = play_episodes(playing)
        steps = {name: player.policies[name].step for name in scores}
        results = {name: score.to_json() for name, score in scores.items()}
        lines = (
            line
            for name, result in results.items()
            for line in score_lines(f"{name} (step {steps[name]})", result)
        )
        step = max(steps.values(), default=0)
        say_result(parsed, {"run_id": run_id, "step": step, "behaviors": results}, lines)
    return 0


def play(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style play ENV``. Returns the exit code.

    Raises:
        UserError: something in the flags cannot be done.
        LaunchError: there is no such environment.
        BridgeError: the simulator failed.
    """
    settings = nested(vars(parsed), {name: SETTINGS[name] for name in ("time_scale", "no_graphics")})
    played: dict[str, list[dict[str, Any]]] = {}

    def show(behavior: str, episode: EndedEpisode) -> None:
        played.setdefault(behavior, []).append(episode.to_json())
        if not parsed.json:
            say(_episode_text(behavior, episode))

    with playing_of(parsed, settings=settings, **_player(parsed)) as playing:
        _, scores = play_episodes(playing, on_episode=show)
    results = {name: score.to_json() for name, score in scores.items()}
    if parsed.json:
        of_all = {name: {**result, "played": played.get(name, [])} for name, result in results.items()}
        say_json({"env": parsed.env, "policy": parsed.policy, "behaviors": of_all})
        return 0
    for name, result in results.items():
        say("\n".join(score_lines(name, result)))
    return 0


def _run_alone(parsed: argparse.Namespace) -> tuple[str, str]:
    """The run id and checkpoint of ``RUN_ID@WHICH``. Raises UserError where there is no run to evaluate alone."""
    name = parse_player(parsed.run_id)
    for flag, given in (("--side", parsed.side is not None), ("--cross-play", parsed.cross_play)):
        if given:
            raise UserError(f"{flag}: of no use without --against")
    if name.run_id is None:
        raise UserError(
            f"'{name.text}' is evaluated in games only: say --against, give the run id, or use play"
        )
    if name.run_id == name.text:
        return name.run_id, parsed.checkpoint
    if parsed.checkpoint != "last":
        raise UserError(f"--checkpoint: '{name.text}' says already which")
    return name.run_id, name.which


def _player(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``Playing`` that say who plays. Raises UserError where there is no such run."""
    from trainer_service.running.runs.folder import RunFolder

    name = parse_player(parsed.policy)
    if name.run_id is not None:
        try:
            return {"run": RunFolder.read(parsed.results_dir, name.run_id), "checkpoint": name.which}
        except UserError as error:
            raise UserError(f"--policy: expected random, expert or a run, but {error}") from None
    if parsed.stochastic and not name.is_file:
        raise UserError(f"--stochastic: of no use for '{name.text}'; it is for the policy of a run")
    return {"players": (name,)}


def _episode_text(behavior: str, episode: EndedEpisode) -> str:
    outcome = "time limit" if episode.truncated else "terminated"
    return (
        f"{behavior}, episode {episode.number}: return {episode.episode_return:.3f}, length {episode.length}, "
        f"{'cut at the limit of steps' if episode.cut else outcome}"
    )
