"""Results of matches, as JSON and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer_service.commands.common.output import say
from trainer_service.ops.ratings import elo_difference

if TYPE_CHECKING:
    from trainer_service.config import PlayerName
    from trainer_service.running.evaluation.match import Games
    from trainer_service.running.evaluation.players import Player


@dataclass(frozen=True, slots=True)
class Match:
    """A pair of players and their games, by the side that the first had."""

    player: Player
    opponent: Player
    sides: Mapping[str, Games]

    @property
    def games(self) -> Games:
        """The games of all sides."""
        first, *others = self.sides.values()
        return sum(others, start=first)

    @property
    def is_decided(self) -> bool:
        """Whether a game came to an end of its own: where the clock ends them all, returns alone tell who is better."""
        return any(games.interrupted < len(games.results) for games in self.sides.values())

    def to_json(self) -> dict[str, Any]:
        """Returns an entry of the output of ``--json``."""
        return {
            "player": self.player.name.text,
            "step": self.player.step,
            "opponent": self.opponent.name.text,
            "opponent_step": self.opponent.step,
            **self.games.to_json(),
            "sides": {side: games.to_json() for side, games in self.sides.items()},
        }


def print_matches(env: str, matches: Sequence[Match], everyone: Sequence[PlayerName]) -> None:
    """Prints the results. everyone: the players of a cross-play, else none."""
    if len(matches) == 1:
        _print_match(env, matches[0])
        return
    players = list(dict.fromkeys(everyone))
    if any(match.is_decided for match in matches):
        _print_win_rates(env, matches)
        if players:
            _print_win_rates_across(matches, players)
        return
    _print_returns(env, matches)
    if players:
        _print_returns_across(matches, players)


def _print_match(env: str, match: Match) -> None:
    games = match.games
    say(f"{_title(match.player)} against {_title(match.opponent)} on {env}")
    if match.is_decided:
        interrupted = f" ({games.interrupted} of them interrupted)" if games.interrupted else ""
        say(
            f"  {len(games.results)} games: {games.won} won, {games.drawn} drawn{interrupted}, {games.lost} lost"
        )
        low, high = games.win_rate_interval
        say(f"  win rate {games.win_rate:.1%}, 95 % interval {low:.1%} to {high:.1%} (a draw is half a win)")
        say(f"  Elo difference {_elo_text(games.win_rate)}, {_elo_text(low)} to {_elo_text(high)}")
    else:
        say(f"  {len(games.results)} games, none of which terminated: compare the returns")
    if games.cut:
        say(f"  {games.cut} games were cut at the limit of steps (--max-episode-steps)")
    say(f"  mean return {_return_text(games.returns)}, theirs {_return_text(games.opponent_returns)}")
    for side, part in match.sides.items():
        say(f"  as {_side_text(side)}: {_part_text(part, decided=match.is_decided)}")


def _part_text(part: Games, *, decided: bool) -> str:
    if not decided:
        return f"mean return {_return_text(part.returns)}, theirs {_return_text(part.opponent_returns)}"
    return (
        f"{part.won} won, {part.drawn} drawn, {part.lost} lost, win rate {part.win_rate:.1%}, "
        f"mean return {_mean_text(part.returns)}, theirs {_mean_text(part.opponent_returns)}"
    )


def _print_win_rates(env: str, matches: Sequence[Match]) -> None:
    """Prints a row for each match."""
    say(f"On {env}; win rates with 95 % intervals, a draw being half a win:")
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


def _print_win_rates_across(matches: Sequence[Match], players: Sequence[PlayerName]) -> None:
    """Prints win rates of each row's player against each column's."""
    rates = {(match.player.name, match.opponent.name): match.games.win_rate for match in matches}
    rates |= {(other, one): 1.0 - rate for (one, other), rate in rates.items()}
    say("\nWin rates of rows against columns:")
    rows = [("", *(name.text for name in players), "mean")]
    for one in players:
        found = [rates.get((one, other)) for other in players]
        known = [rate for rate in found if rate is not None]
        cells = ["–" if rate is None else f"{rate:.1%}" for rate in found]
        mean = f"{sum(known) / len(known):.1%}" if known else "–"  # an interrupted cross-play lacks some
        rows.append((one.text, *cells, mean))
    _print_table(rows, left=1)


def _print_returns(env: str, matches: Sequence[Match]) -> None:
    """Prints a row for each match and side, of games that the clock ended."""
    say(f"On {env}; mean returns, because no game terminated:")
    rows = [("", "against", "as", "games", "return", "theirs")]
    for match in matches:
        for side, games in match.sides.items():
            rows.append(
                (
                    _title(match.player), _title(match.opponent), _side_text(side), str(len(games.results)),
                    _return_text(games.returns), _return_text(games.opponent_returns),
                )
            )  # fmt: skip
    _print_table(rows, left=3)


def _print_returns_across(matches: Sequence[Match], players: Sequence[PlayerName]) -> None:
    """Prints each side's mean returns, where the row's player has it and the column's the others."""
    found = returns_across(matches)
    for side in dict.fromkeys(side for side, *_ in found):
        say(f"\nMean returns as {_side_text(side)}, of rows against columns:")
        rows = [("", *(name.text for name in players))]
        for one in players:
            cells = [found.get((side, one, other), ()) for other in players]
            rows.append((one.text, *map(_mean_text, cells)))
        _print_table(rows, left=1)


def returns_across(matches: Sequence[Match]) -> dict[tuple[str, PlayerName, PlayerName], Sequence[float]]:
    """Returns what a player earned in each game, by its side, itself, and who had the other sides.

    Where there are two sides a match of A and B tells it of B, too: it has the side that A has not.
    """
    found: dict[tuple[str, PlayerName, PlayerName], Sequence[float]] = {}
    for match in matches:
        one, other = match.player.name, match.opponent.name
        for side, games in match.sides.items():
            found[side, one, other] = games.returns
        if len(match.sides) == 2:
            first, second = match.sides
            found[first, other, one] = match.sides[second].opponent_returns
            found[second, other, one] = match.sides[first].opponent_returns
    return found


def _print_table(rows: Sequence[tuple[str, ...]], *, left: int) -> None:
    """Prints rows with columns of equal width; so many at the left begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say(f"  {'  '.join(cells).rstrip()}")


def _title(player: Player) -> str:
    """The name, and the step where that does not say it."""
    text = player.name.text
    return text if player.step is None or text.endswith(f"@{player.step}") else f"{text} (step {player.step})"


def _side_text(side: str) -> str:
    return f"team {side}" if side.isdecimal() else side


def _elo_text(win_rate: float) -> str:
    difference = elo_difference(win_rate)
    if math.isfinite(difference):
        return f"{difference:+.0f}"
    return "+∞" if difference > 0 else "-∞"


def _mean_text(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3f}" if values else "–"


def _return_text(values: Sequence[float]) -> str:
    return f"{_mean_text(values)} ± {float(np.std(values)):.3f}" if values else "–"
