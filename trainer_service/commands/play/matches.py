"""The command ``evaluate --against``: games of players against each other."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from trainer_service.commands.common.output import print_warning, progress_printer, say_json
from trainer_service.commands.play.film_flag import film_of
from trainer_service.commands.play.match_results import Match, print_matches
from trainer_service.commands.watch.person import HUMAN, play_person
from trainer_service.config import PlayerName, RunOptions, parse_player
from trainer_service.config.names import STATE_SUFFIXES
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.commands.play.films import FilmOptions
    from trainer_service.running.runs.folder import RunFolder

# What is heavy is imported where it is needed: torch takes seconds.


def play_matches(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style evaluate A --against B …``. Returns the exit code.

    Raises:
        UserError: players that do not exist or do not fit, or no opponent.
        BridgeError: a simulator failed.
    """
    with film_of(parsed) as film:
        _play_matches(parsed, film)
    return 0


def _play_matches(parsed: argparse.Namespace, film: FilmOptions | None) -> None:
    from trainer_service.commands.common.trained_run import one_thread
    from trainer_service.running.collection.launching import program_for
    from trainer_service.running.evaluation.loop import EpisodeLoop, require_limit
    from trainer_service.running.evaluation.match import play_match
    from trainer_service.running.evaluation.players import load_player, with_expert
    from trainer_service.running.evaluation.simulator import RECORDING_GRACE_S, EvaluationSimulator
    from trainer_service.running.metrics.console import Console
    from trainer_service.running.runs.status import read_lessons
    from trainer_service.running.training.compute import choose_device

    require_limit(parsed.max_episode_steps)
    if HUMAN in parsed.against:
        _play_person(parsed)
        return
    names = _player_names(parsed)
    pairs = _pairs(names, cross_play=parsed.cross_play)
    if parsed.record is not None and len(pairs) > 1:
        raise UserError(f"--record: films the games of one pair, got {len(pairs)}")
    folder, options = _home(names, parsed.results_dir)
    env, env_args = _environment(parsed, options)
    command = program_for(options, env, env_args)
    if any(name.is_expert for name in names):
        command = with_expert(command)
    if film is not None:
        command = film.filmed_by(command)
    grace_s = 3.0 if film is None else RECORDING_GRACE_S
    simulator = EvaluationSimulator(options, command, parsed.seed, grace_s)
    device = str(choose_device(parsed.torch_device))
    with ExitStack() as stack:
        # Everything on the way goes to standard error: standard output is for the result.
        stack.enter_context(Console(tty=False, stream=sys.stderr))
        stack.enter_context(one_thread())
        lessons = {} if folder is None else read_lessons(folder.status)
        for where in simulator.describe(lessons):
            logging.getLogger(__name__).info("%s", where)
        players = {
            name: load_player(name, parsed.results_dir, device=device, seed=parsed.seed + number)
            for number, name in enumerate(names)
        }
        matches = []
        for name, other in pairs:
            progress = progress_printer("games")
            with simulator.open(lessons) as bridge:
                games = play_match(
                    EpisodeLoop(bridge, parsed.max_episode_steps, what="game", progress=progress),
                    players[name], players[other], games=parsed.episodes, side=parsed.side, teams=options.teams,
                    deterministic=not parsed.stochastic,
                )  # fmt: skip
            matches.append(Match(players[name], players[other], games))
    if not parsed.stochastic:
        _warn_of_repetitions(matches)
    if parsed.json:
        say_json({"env": env, "matches": [match.to_json() for match in matches]})
    else:
        print_matches(env, matches, names if parsed.cross_play else ())


def _play_person(parsed: argparse.Namespace) -> None:
    """Plays and prints games against the person at the keyboard."""
    from trainer_service.running.evaluation.players import load_player
    from trainer_service.running.metrics.console import Console

    if parsed.against != [HUMAN]:
        raise UserError(f"--against: expected {HUMAN} alone, got {' '.join(parsed.against)}")
    parsed.against = []
    (name,) = _player_names(parsed)
    folder, options = _home([name], parsed.results_dir)
    env, env_args = _environment(parsed, options)
    with Console(tty=False, stream=sys.stderr):
        player = load_player(name, parsed.results_dir, device=parsed.torch_device, seed=parsed.seed)
        person, games = play_person(parsed, player, env, env_args, folder, options)
    matches = [Match(player, person, games)]
    if parsed.json:
        say_json({"env": env, "matches": [match.to_json() for match in matches]})
    else:
        print_matches(env, matches, ())


def _player_names(parsed: argparse.Namespace) -> list[PlayerName]:
    """All players, the one that is evaluated first."""
    texts = [parsed.run_id, *parsed.against]
    if parsed.checkpoint != "last":
        name = parse_player(parsed.run_id)
        if name.run_id != name.text:
            raise UserError(f"--checkpoint: '{name.text}' says already which")
        texts[0] = (
            parsed.checkpoint
            if parsed.checkpoint.endswith(STATE_SUFFIXES)
            else f"{name.text}@{parsed.checkpoint}"
        )
    names = [parse_player(text) for text in texts]
    if len(set(names[1:])) < len(names) - 1:
        raise UserError(f"--against: expected each player once, got {' '.join(parsed.against)}")
    return names


def _pairs(names: Sequence[PlayerName], *, cross_play: bool) -> list[tuple[PlayerName, PlayerName]]:
    if cross_play:
        return list(itertools.combinations(dict.fromkeys(names), 2))
    return [(names[0], other) for other in names[1:]]


def _home(names: Sequence[PlayerName], results_dir: str) -> tuple[RunFolder | None, RunOptions]:
    """The run whose environment and lessons are played in: that of the first player that is a run."""
    from trainer_service.commands.common.trained_run import options_of
    from trainer_service.running.runs.folder import RunFolder

    for name in names:
        if name.run_id is not None:
            folder = RunFolder.read(results_dir, name.run_id)
            return folder, options_of(folder)
    return None, RunOptions()


def _environment(parsed: argparse.Namespace, options: RunOptions) -> tuple[str, tuple[str, ...]]:
    """Where to play, and the simulator's arguments. Raises UserError where it is not known."""
    from trainer_service.commands.common.environments import environment_for

    env, arguments = environment_for(parsed.env, env_args=parsed.env_args or None).over(options)
    if env is None:
        raise UserError("it is not known where to play: say --env")
    return env, arguments


def _warn_of_repetitions(matches: Sequence[Match]) -> None:
    """Warns of matches whose games were all alike: without any chance one game is played over and over."""
    for match in matches:
        names = match.player.name, match.opponent.name
        if not any(name.is_random for name in names) and all(
            games.are_alike for games in match.sides.values()
        ):
            print_warning(
                f"{names[0].text} against {names[1].text}: all games on a side were alike. Where the environment has "
                "no chance of its own they are one game, and the interval says nothing: --stochastic draws actions."
            )
