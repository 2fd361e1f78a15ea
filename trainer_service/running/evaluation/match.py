"""Matches of two players, in which each plays every side."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from trainer_service.errors import UserError
from trainer_service.learning.rollout.episode_scores import mean_or_none, std_or_none
from trainer_service.learning.rollout.games import ALL_TEAMS, DRAW, GameLedger, side_batch
from trainer_service.ops.ratings import elo_difference, wilson_interval
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.evaluation.loop import EpisodeLoop, Play, PlayStopped
from trainer_service.running.evaluation.players import Player, actors_of
from trainer_service.running.metrics.jsonl import finite_or_none
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, first_allowed

_LONGEST_ROUND = 32
"""Ticks in which every player of a game in turns must have had one."""

Side = frozenset[str]
"""Behavior ids that one player acts for."""


@dataclass(frozen=True, slots=True)
class Games:
    """Games of one player against another, or those of one side of them."""

    results: tuple[float, ...] = ()
    """1 won, ½ drawn, 0 lost."""

    interrupted: int = 0
    """How many of the draws were interrupted, as by a time limit."""

    returns: tuple[float, ...] = ()
    """The return of the player's side in each game; raw."""

    opponent_returns: tuple[float, ...] = ()
    """The return of the other side in each game; raw."""

    lengths: tuple[int, ...] = ()
    """How often the player's side was asked in each game."""

    cut: int = 0
    """The number of interrupted games that were cut at a limit of steps (``max_episode_steps``)."""

    def __add__(self, other: Games) -> Games:
        return Games(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def are_alike(self) -> bool:
        """Whether several games all had one result, return and length: perhaps they were one game, over and over."""
        return len(self.results) > 1 == len({*zip(self.results, self.returns, self.lengths, strict=False)})

    @property
    def won(self) -> int:
        """Games won."""
        return sum(result > DRAW for result in self.results)

    @property
    def drawn(self) -> int:
        """Games drawn, interrupted ones included."""
        return sum(result == DRAW for result in self.results)

    @property
    def lost(self) -> int:
        """Games lost."""
        return sum(result < DRAW for result in self.results)

    @property
    def win_rate(self) -> float:
        """The share of games won, a draw being half a win."""
        return sum(self.results) / len(self.results)

    @property
    def win_rate_interval(self) -> tuple[float, float]:
        """The 95 % interval of the win rate (Wilson)."""
        return wilson_interval(sum(self.results), len(self.results))

    def to_json(self) -> dict[str, Any]:
        """The games as ``evaluate --against --json`` prints them. Infinite differences are null."""
        low, high = self.win_rate_interval
        return {
            "games": len(self.results),
            "won": self.won,
            "drawn": self.drawn,
            "lost": self.lost,
            "interrupted": self.interrupted,
            **({"cut_episodes": self.cut} if self.cut else {}),
            "win_rate": self.win_rate,
            "win_rate_interval": [low, high],
            "elo_difference": finite_or_none(elo_difference(self.win_rate)),
            "elo_interval": [finite_or_none(elo_difference(low)), finite_or_none(elo_difference(high))],
            "mean_return": mean_or_none(self.returns),
            "std_return": std_or_none(self.returns),
            "opponent_mean_return": mean_or_none(self.opponent_returns),
            "opponent_std_return": std_or_none(self.opponent_returns),
            "mean_length": mean_or_none(self.lengths),
        }


def play_match(
    loop: EpisodeLoop,
    player: Player,
    opponent: Player,
    *,
    games: int,
    side: str | None = None,
    teams: Mapping[str, Collection[str]] = MappingProxyType({}),
    deterministic: bool = True,
) -> Mapping[str, Games]:
    """Plays games of two players in one simulator: an equal share on each side, one side after the other.

    Sides are the team ids, or with a single team id the behavior names. The simulator starts again for each side.

    Args:
        loop: with its one simulator on its way.
        player, opponent: who plays.
        games: how many, rounded up to a multiple of the sides; the first that start on each.
        side: the player's only one: team ids or behavior names, with commas between them; None for all in turn.
        teams: behaviors that are one side, by its name; see ``sides_of``.
        deterministic: likeliest actions of policies instead of drawn ones.

    Returns:
        The ended games by the player's side. Where a callback stops the loop, sides without an ended game are absent.

    Raises:
        UserError: there is no such side, no opponent, or a player without a fitting policy; or as from
            ``EpisodeLoop.play``.
        BridgeError: the simulator failed.
    """
    halves: dict[str, _Half] = {}
    with suppress(PlayStopped):
        tick, specs = _first_tick(loop)
        sides = sides_of(specs, side, teams)
        each = math.ceil(games / len(sides))
        for name, ids in sides.items():
            if halves:
                loop.simulators.reset(tick.simulator)
                tick = loop.next_tick()
            before = len(halves) * each
            halves[name] = _Half(loop, specs, ids, player, opponent, each, deterministic=deterministic)
            loop.play(halves[name], tick, before=before, wanted=each * len(sides))
    played = {name: half.games() for name, half in halves.items()}
    return {name: ended for name, ended in played.items() if ended.results}


class _Half(Play):
    """The games in which the player has one of the sides."""

    def __init__(
        self,
        loop: EpisodeLoop,
        specs: Mapping[str, BehaviorSpec],
        ids: Side,
        player: Player,
        opponent: Player,
        wanted: int,
        *,
        deterministic: bool,
    ) -> None:
        self._ids = ids
        self._is_known = False
        """Whether a tick was counted, and so all behaviors are known."""
        players = {True: player, False: opponent}
        self._actors_of = {
            is_players: actors_of(each, deterministic=deterministic) for is_players, each in players.items()
        }
        """By whether they are the player's."""
        super().__init__(*self._actors_of.values())
        for is_players, actors in self._actors_of.items():
            own = {each: spec for each, spec in specs.items() if (each in ids) is is_players}
            try:
                actors.declare(Tick(0, own, {}))
            except UserError as error:
                name = players[is_players].name.text
                raise UserError(f"player '{name}' as {', '.join(own)}: {error}") from None
        self._own, self._others = GameLedger(wanted), GameLedger(wanted)
        self.tallies = [
            loop.tally(_names(sorted(ids)), self._own),
            loop.tally("the others", self._others, is_reported=False),
        ]

    def step(self, tick: Tick) -> Mapping[str, ActionBatch]:
        """Counts a tick and, unless it was the last, decides for both players. Raises UserError for new behaviors."""
        if tick.new_specs and self._is_known:
            raise UserError(f"{_names(tick.new_specs)} appeared after the games had begun")
        self._is_known = True
        for tally in self.tallies:
            batches = [
                batch for each, batch in tick.steps.items() if (each in self._ids) is tally.is_reported
            ]
            if batches:
                tally.observe(tick.simulator, ALL_TEAMS, side_batch(batches))
        if self.complete:
            return {}
        return {each: self._actors_of[each in self._ids].act_as(tick, each) for each in tick.steps}

    def games(self) -> Games:
        """The games that have ended."""
        own, others = self._own, self._others
        return Games(
            tuple(own.results),
            own.num_interrupted,
            tuple(own.returns),
            tuple(others.returns),
            tuple(own.lengths),
            own.num_cut,
        )


def _first_tick(loop: EpisodeLoop) -> tuple[Tick, Mapping[str, BehaviorSpec]]:
    """The first tick of a match, and what sides there are.

    The first tick with agents shows all, but where players act in turn it shows one. Then anything is played until that
    one's turn comes again, and the simulator starts again.
    """
    tick = loop.next_tick()
    specs = dict(tick.new_specs)
    while not tick.steps:
        loop.simulators.reply(tick.simulator, {})
        tick = loop.next_tick()
        specs |= tick.new_specs
    if len(specs) > 1:
        return tick, specs
    first = set(specs)
    for _ in range(_LONGEST_ROUND):
        actions = {each: first_allowed(batch, specs[each].action_spec) for each, batch in tick.steps.items()}
        loop.simulators.reply(tick.simulator, actions)
        tick = loop.next_tick()
        specs |= tick.new_specs
        if len(specs) > 1 and first & set(tick.steps):
            break
    loop.simulators.reset(tick.simulator)
    return loop.next_tick(), specs


def sides_of(
    ids: Iterable[str], wanted: str | None, teams: Mapping[str, Collection[str]] = MappingProxyType({})
) -> dict[str, Side]:
    """The sides that a player has one after the other: team ids, or where there is one only the behavior names.

    Args:
        ids: behavior ids that play.
        wanted: the only side, by its name, or several that are one, with commas; None for each in turn.
        teams: behaviors that learned as one, by the group's name: they are one side with that
            name, unless no agent is left on another.

    Raises:
        UserError: there is no such side, or no agent is on another one.
    """
    names = {behavior_id: parse_behavior_id(behavior_id) for behavior_id in ids}
    group_of = {member: group for group, members in teams.items() for member in members}
    if len({team for _, team in names.values()}) > 1:
        side_of = {behavior_id: str(team) for behavior_id, (_, team) in names.items()}
    else:
        side_of = {behavior_id: group_of.get(name, name) for behavior_id, (name, _) in names.items()}
        if len(set(side_of.values())) == 1:
            # One learner for opponents, as MADDPG may be, makes them no side of a game.
            side_of = {behavior_id: name for behavior_id, (name, _) in names.items()}
    words = sorted(set(side_of.values()))
    if len(words) < 2:
        raise UserError(
            f"no opponent: all agents are on one side, {_names(names)}; expected several teams "
            "(NAME?team=0, NAME?team=1) or several behavior names"
        )
    asked = words if wanted is None else [word.strip() for word in wanted.split(",")]
    ids_of = {word: frozenset(each for each, side in side_of.items() if side == word) for word in asked}
    if wanted is None:
        return ids_of
    chosen: Side = frozenset().union(*ids_of.values())
    if not all(ids_of.values()) or len(chosen) == len(side_of):
        raise UserError(
            f"--side: expected one of {', '.join(words)}, or some of them with commas, got '{wanted}'"
        )
    return {wanted: chosen}


def _names(ids: Iterable[str]) -> str:
    return ", ".join(f"'{each}'" for each in ids)
