"""The command ``evaluate --against``: games of players against each other."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_service.cli.films import film_of
from trainer_service.cli.output import print_warning, progress_printer
from trainer_service.config import PlayerName, RunOptions, parse_player
from trainer_service.errors import UserError

if TYPE_CHECKING:
    from trainer_service.api.films import FilmOptions
    from trainer_service.evaluation.match import Games
    from trainer_service.evaluation.players import Player
    from trainer_service.runs.folder import RunFolder

# What is heavy is imported where it is needed: torch takes seconds.


@dataclass(frozen=True, slots=True)
class _Match:
    """A pair of players and their games, by the side that the first had."""

    player: Player
    opponent: Player
    sides: Mapping[str, Games]

    @property
    def games(self) -> Games:
        """The games of all sides."""
        first, *others = self.sides.values()
        return sum(others, start=first)

    def to_json(self) -> dict[str, Any]:
        """An entry of what ``--json`` prints."""
        return {
            "player": self.player.name.text,
            "step": self.player.step,
            "opponent": self.opponent.name.text,
            "opponent_step": self.opponent.step,
            **self.games.to_json(),
            "sides": {side: games.to_json() for side, games in self.sides.items()},
        }


def play_matches(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style evaluate A --against B …``. Returns the exit code.

    Raises:
        UserError: players that are not there or do not fit, or nobody to play against.
        BridgeError: a simulator failed.
    """
    with film_of(parsed) as film:
        _play_matches(parsed, film)
    return 0


def _play_matches(parsed: argparse.Namespace, film: FilmOptions | None) -> None:
    from trainer_service.api.trained_run import one_thread, program_for
    from trainer_service.evaluation.match import play_match
    from trainer_service.evaluation.players import load_player
    from trainer_service.evaluation.simulator import RECORDING_GRACE_S, EvaluationSimulator
    from trainer_service.metrics.console import Console
    from trainer_service.runs.status import read_lessons
    from trainer_service.training.compute import choose_device

    names = _player_names(parsed)
    pairs = _pairs(names, cross_play=parsed.cross_play)
    if parsed.record is not None and len(pairs) > 1:
        raise UserError(f"--record: films the games of one pair, got {len(pairs)}")
    folder, options = _home(names, parsed.results_dir)
    env, env_args = _environment(parsed, options, names)
    command = program_for(options, env, env_args)
    if film is not None:
        command = film.filmed_by(command)
    grace_s = 3.0 if film is None else RECORDING_GRACE_S
    simulator = EvaluationSimulator(options, command, parsed.seed, grace_s)
    choose_device(parsed.torch_device)
    with ExitStack() as stack:
        # Everything on the way goes to standard error: standard output is for the result.
        stack.enter_context(Console(tty=False, stream=sys.stderr))
        stack.enter_context(one_thread())
        lessons = {} if folder is None else read_lessons(folder.status)
        for where in simulator.describe(lessons):
            logging.getLogger(__name__).info("%s", where)
        players = {
            name: load_player(name, parsed.results_dir, device=parsed.torch_device, seed=parsed.seed + number)
            for number, name in enumerate(names)
        }
        matches = []
        for name, other in pairs:
            progress = progress_printer("games")
            with simulator.open(lessons) as bridge:
                games = play_match(
                    bridge, players[name], players[other], games=parsed.episodes, side=parsed.side, teams=options.teams,
                    deterministic=not parsed.stochastic, progress=progress,
                )  # fmt: skip
            matches.append(_Match(players[name], players[other], games))
    if not parsed.stochastic:
        _warn_of_repetitions(matches)
    if parsed.json:
        print(json.dumps({"env": env, "matches": [match.to_json() for match in matches]}))
    else:
        _print_matches(env, matches, names if parsed.cross_play else ())


def _player_names(parsed: argparse.Namespace) -> list[PlayerName]:
    """All players, the one that is evaluated first."""
    texts = [parsed.run_id, *parsed.against]
    if parsed.checkpoint != "last":
        name = parse_player(parsed.run_id)
        if name.run_id != name.text:
            raise UserError(f"--checkpoint: '{name.text}' says already which")
        texts[0] = (
            parsed.checkpoint if parsed.checkpoint.endswith(".pt") else f"{name.text}@{parsed.checkpoint}"
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
    from trainer_service.api.trained_run import options_of
    from trainer_service.runs.folder import RunFolder

    for name in names:
        if name.run_id is not None:
            folder = RunFolder.read(results_dir, name.run_id)
            return folder, options_of(folder)
    return None, RunOptions()


def _environment(
    parsed: argparse.Namespace, options: RunOptions, names: Sequence[PlayerName]
) -> tuple[str, list[str]]:
    """Where to play, and the simulator's arguments. Raises UserError where it is not known, or has no expert."""
    from unity_bridge.simulators.registry import experts

    environment = options.env_settings
    env = parsed.env or environment.env_path
    if env is None:
        raise UserError("it is not known where to play: say --env")
    same = env == environment.env_path  # then it gets the arguments that it had while training
    arguments = list(parsed.env_args or (environment.env_args if same else None) or ())
    if any(name.is_expert for name in names):
        if env not in experts():
            raise UserError(
                f"expert: '{env}' has no expert of its own; expected one of {', '.join(experts())}"
            )
        arguments.append("--expert")
    return env, arguments


def _warn_of_repetitions(matches: Sequence[_Match]) -> None:
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


def _print_matches(env: str, matches: Sequence[_Match], everyone: Sequence[PlayerName]) -> None:
    if len(matches) == 1:
        _print_match(env, matches[0])
        return
    print(f"On {env}; win rates with 95 % intervals, a draw being half a win:")
    rows = [("", "against", "games", "won", "drawn", "lost", "win rate", "", "Elo", "return", "theirs")]
    for match in matches:
        games = match.games
        low, high = games.win_rate_interval
        rows.append(
            (
                _title(match.player), _title(match.opponent), str(len(games.results)), str(games.won),
                str(games.drawn), str(games.lost), f"{games.win_rate:.1%}", f"{low:.1%} to {high:.1%}",
                _elo_text(games.win_rate), _mean_text(games.returns), _mean_text(games.opponent_returns),
            )
        )  # fmt: skip
    _print_table(rows, left=2)
    if everyone:
        _print_cross_play(matches, list(dict.fromkeys(everyone)))


def _print_cross_play(matches: Sequence[_Match], players: Sequence[PlayerName]) -> None:
    """Prints win rates of each row's player against each column's."""
    rates = {(match.player.name, match.opponent.name): match.games.win_rate for match in matches}
    rates |= {(other, one): 1.0 - rate for (one, other), rate in rates.items()}
    print("\nWin rates of rows against columns:")
    rows = [("", *(name.text for name in players), "mean")]
    for one in players:
        found = [rates.get((one, other)) for other in players]
        known = [rate for rate in found if rate is not None]
        cells = ["–" if rate is None else f"{rate:.1%}" for rate in found]
        rows.append((one.text, *cells, f"{sum(known) / len(known):.1%}"))
    _print_table(rows, left=1)


def _print_match(env: str, match: _Match) -> None:
    games = match.games
    interrupted = f" ({games.interrupted} of them interrupted)" if games.interrupted else ""
    print(f"{_title(match.player)} against {_title(match.opponent)} on {env}")
    print(
        f"  {len(games.results)} games: {games.won} won, {games.drawn} drawn{interrupted}, {games.lost} lost"
    )
    low, high = games.win_rate_interval
    print(f"  win rate {games.win_rate:.1%}, 95 % interval {low:.1%} to {high:.1%} (a draw is half a win)")
    print(f"  Elo difference {_elo_text(games.win_rate)}, {_elo_text(low)} to {_elo_text(high)}")
    print(f"  mean return {_return_text(games.returns)}, theirs {_return_text(games.opponent_returns)}")
    if games.interrupted == len(games.results):
        print("  No game came to an end of its own: compare the returns.")
    for side, part in match.sides.items():
        label = f"team {side}" if side.isdecimal() else side
        print(
            f"  as {label}: {part.won} won, {part.drawn} drawn, {part.lost} lost, win rate {part.win_rate:.1%}, "
            f"mean return {_mean_text(part.returns)}, theirs {_mean_text(part.opponent_returns)}"
        )


def _print_table(rows: Sequence[tuple[str, ...]], *, left: int) -> None:
    """Prints rows with columns of equal width; so many at the left begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(f"  {'  '.join(cells).rstrip()}")


def _title(player: Player) -> str:
    """The name, and the step where that does not say it."""
    text = player.name.text
    return text if player.step is None or text.endswith(f"@{player.step}") else f"{text} (step {player.step})"


def _elo_text(win_rate: float) -> str:
    from trainer_service.ops.ratings import elo_difference

    difference = elo_difference(win_rate)
    if math.isfinite(difference):
        return f"{difference:+.0f}"
    return "+∞" if difference > 0 else "-∞"


def _mean_text(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "–"


def _return_text(values: Sequence[float]) -> str:
    import numpy as np

    return f"{_mean_text(values)} ± {float(np.std(values)):.3f}" if values else "–"
