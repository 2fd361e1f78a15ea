"""The command ``evaluate --against``: games of players against each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from trainer_service.commands.common.output import CommandResult, note, print_warning, progress_printer
from trainer_service.commands.play.flags import playing_of, stops_play
from trainer_service.commands.play.match_results import Match, print_matches
from trainer_service.commands.play.person import HUMAN, play_person
from trainer_service.commands.play.playing import Playing, play_games
from trainer_service.config import PlayerName, parse_player
from trainer_service.config.names import STATE_SUFFIXES
from trainer_service.errors import Interrupted, UserError
from trainer_service.running.evaluation.loop import PlayStopped
from trainer_service.running.runs.folder import RunFolder


def play_matches(
    run_id: str,
    against: Sequence[str],
    *,
    checkpoint: str,
    side: str | None,
    cross_play: bool,
    page: Mapping[str, Any],
    **how: Any,
) -> CommandResult:
    """The games of ``evaluate A --against B …``.

    page: arguments of ``play_person``. how: arguments of ``playing_of``.

    Raises:
        Interrupted: before any game ended.
        UserError: players that do not exist or do not fit, or no opponent.
        BridgeError: a simulator failed.
    """
    has_person = HUMAN in against
    if has_person and [*against] != [HUMAN]:
        raise UserError(f"--against: expected {HUMAN} alone, got {' '.join(against)}")
    for flag, given in (("--record", how["record"] is not None), ("--cross-play", cross_play)):
        if has_person and given:
            raise UserError(f"{flag}: not allowed with {HUMAN}")
    names = _player_names(run_id, checkpoint, [] if has_person else against)
    pairs = _pairs(names, cross_play=cross_play)
    if how["record"] is not None and len(pairs) > 1:
        raise UserError(f"--record: films the games of one pair, got {len(pairs)}")
    run, progress = _home(names, how["results_dir"]), progress_printer("games")
    how |= {"run": run, "players": names, "side": side, "progress": progress}
    # The page of a person has a Ctrl-C of its own.
    stops = nullcontext(lambda: None) if has_person else stops_play()
    with stops as check_stop, playing_of(**how, check_stop=check_stop) as playing:
        env, _ = playing.environment.over(playing.options)
        if env is None:
            raise UserError("no environment is given: add --env")
        matches = [play_person(playing, **page)] if has_person else list(_play_pairs(playing, pairs))
        if not has_person and playing.deterministic:
            _warn_of_repetitions(matches)
    interrupted = not has_person and _is_interrupted(matches, wanted=len(pairs) * playing.episodes)
    value = {"env": env, "matches": [match.to_json() for match in matches], "interrupted": interrupted}
    lines = _shown(env, matches, names if cross_play else ())
    return CommandResult(value, lines, Interrupted.exit_code if interrupted else 0)


def _is_interrupted(matches: Sequence[Match], wanted: int) -> bool:
    """Whether fewer games than wanted have ended, which is said. Raises Interrupted where none has."""
    ended = sum(len(match.games.results) for match in matches)
    if not ended:
        raise Interrupted("interrupted before any game ended")
    if ended < wanted:
        note(f"Interrupted after {ended} of {wanted} games: short ones end first.")
    return ended < wanted


def _shown(env: str, matches: Sequence[Match], everyone: Sequence[PlayerName]) -> Iterator[str]:
    """Prints the results where lines are asked for; there are none besides."""
    print_matches(env, matches, everyone)
    yield from ()


def _play_pairs(playing: Playing, pairs: Sequence[tuple[PlayerName, PlayerName]]) -> Iterator[Match]:
    """The matches of all pairs, one after the other, each on a simulator of its own; after a stop those with games."""
    simulator = playing.simulator()
    players = dict(zip(playing.players, playing.load(), strict=True))
    with suppress(PlayStopped):
        for name, other in pairs:
            playing.check_stop()
            with playing.loop(simulator, "game") as loop:
                match = play_games(playing, loop, players[name], players[other])
            if match.sides:
                yield match


def _player_names(run_id: str, checkpoint: str, opponents: Sequence[str]) -> list[PlayerName]:
    """All players, the one that is evaluated first."""
    texts = [run_id, *opponents]
    if checkpoint != "last":
        name = parse_player(run_id)
        if name.run_id != name.text:
            raise UserError(f"--checkpoint: '{name.text}' says already which")
        texts[0] = checkpoint if checkpoint.endswith(STATE_SUFFIXES) else f"{name.text}@{checkpoint}"
    names = [parse_player(text) for text in texts]
    if len(set(names[1:])) < len(names) - 1:
        raise UserError(f"--against: expected each player once, got {' '.join(opponents)}")
    return names


def _pairs(names: Sequence[PlayerName], *, cross_play: bool) -> list[tuple[PlayerName, PlayerName]]:
    if cross_play:
        return list(itertools.combinations(dict.fromkeys(names), 2))
    return [(names[0], other) for other in names[1:]]


def _home(names: Sequence[PlayerName], results_dir: Path) -> RunFolder | None:
    """The run whose environment and lessons are played in: the first player that is a run."""
    runs = (name.run_id for name in names if name.run_id is not None)
    return next((RunFolder.read(results_dir, run_id) for run_id in runs), None)


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
