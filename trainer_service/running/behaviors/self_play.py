"""Rules of self-play: the learning side, the snapshots that other sides use, and ratings.

A state machine without a clock, simulator or network. One side learns at a time. The other sides act with earlier
weights of their behavior (snapshots) or with the newest. The rules and their defaults are ML-Agents'. In addition, the
pool of opponents may contain fixed players, and the learner's win rates may weight the draws.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from trainer_service.config import SELF, SelfPlaySettings
from trainer_service.ops.ratings import pfsp_weight, rating_change
from trainer_service.running.collection.opponents import FixedOpponent, Results, Snapshot, Weights

_LATEST = -1
_logger = logging.getLogger(__name__)


class TurnScheduler:
    """The turns of sides to learn, in the order of their team ids.

    A side is all agents with one team id, in all behaviors: two behaviors of one side learn at the same time. A player
    is a behavior's ``SelfPlay``.
    """

    def __init__(self) -> None:
        self.turn = 0
        """Number of changes of the learning side."""
        self._learning: int | None = None
        self._sides: dict[int, list[SelfPlay]] = {}

    @property
    def learning(self) -> int:
        """The learning side; the smallest team id is first."""
        if self._learning not in self._sides:
            self._learning = min(self._sides)
        return self._learning

    @property
    def learning_side_finished(self) -> bool:
        """Whether the learning side has used its step budget, and another side still has steps left."""
        return self.learning not in (unfinished := self._unfinished_sides()) and bool(unfinished)

    @property
    def has_one_side(self) -> bool:
        """Whether all agents of all players belong to one side."""
        return len(self._sides) < 2

    def register_side(self, player: SelfPlay, team: int) -> None:
        """Adds a side of the player's behavior."""
        players = self._sides.setdefault(team, [])
        if player not in players:
            players.append(player)

    def remove_side(self, player: SelfPlay, team: int) -> bool:
        """Removes a player from a side without agents of its behavior. The last side is kept.

        Returns whether it was this side's turn, so that the learning side changed.
        """
        others = [each for each in self._sides.get(team, ()) if each is not player]
        if others:
            self._sides[team] = others
            return False
        changed = team == self.learning
        if team in self._sides and (not changed or self.advance_turn()):
            del self._sides[team]
            return changed
        return False

    def forget(self, player: SelfPlay) -> bool:
        """Removes a player from all sides, including the last one. Returns whether the learning side changed."""
        learning = self._learning
        for team, players in list(self._sides.items()):
            self._sides[team] = [each for each in players if each is not player]
            if not self._sides[team]:
                del self._sides[team]
        if learning is None or learning in self._sides or not self._sides:
            return False
        self.turn += 1
        return True

    def __contains__(self, team: int) -> bool:
        """Whether any player has agents on the side."""
        return team in self._sides

    def resume(self, learning: int, turn: int) -> None:
        """Restores a checkpoint's turn. Of several behaviors' checkpoints, the latest turn counts."""
        if turn >= self.turn:
            self._learning, self.turn = learning, turn

    def advance_turn(self) -> bool:
        """Gives the turn to the next side with steps left. Returns False if there is no other side.

        If no side has steps left, the next side gets the turn. So a run with a raised budget continues in the same
        order.
        """
        others = [team for team in self._unfinished_sides() or sorted(self._sides) if team != self.learning]
        if not others:
            return False
        self._learning = min((team for team in others if team > self.learning), default=others[0])
        self.turn += 1
        return True

    def _unfinished_sides(self) -> list[int]:
        """Sides with steps left, in their order."""
        return [team for team in sorted(self._sides) if not all(each.finished for each in self._sides[team])]

    def rate(self, learner: SelfPlay, results: Sequence[float]) -> list[float]:
        """Updates ratings by games of the learning side against the mean of the other sides, which share the change.

        Args:
            learner: the player of the learning side.
            results: 1 won, ½ drawn, 0 lost.

        Returns:
            The learner's rating after each game; empty without other sides.
        """
        others = [
            (player, team)
            for team, players in sorted(self._sides.items())
            if team != self.learning
            for player in players
        ]
        ratings: list[float] = []
        for result in results if others else ():
            opposed = sum(player.rating_of(team) for player, team in others) / len(others)
            change = rating_change(learner.rating, opposed, result)
            learner.rating += change
            for player, team in others:
                player.add_to_rating(team, -change / len(others))
                player.add_result(team, result)
            ratings.append(learner.rating)
        return ratings

    def opponents_in_words(self) -> list[str]:
        """Names of the other sides' present players, for sides with a pool of opponents."""
        return sorted(
            {
                player.opponent_in_words(team)
                for team, players in self._sides.items()
                if team != self.learning
                for player in players
                if player.has_league
            }
        )


class SelfPlay:
    """One behavior's part in self-play: its snapshots, its rating, and the players of its sides that do not learn.

    A snapshot that left the window stays in memory as long as a side plays as it.
    """

    def __init__(
        self,
        settings: SelfPlaySettings,
        scheduler: TurnScheduler,
        seed: int,
        fixed: Sequence[FixedOpponent] = (),
    ) -> None:
        """Initializes self-play of one behavior, without sides.

        Args:
            settings: the rules.
            scheduler: the turns of all players.
            seed: the seed of opponent draws, combined with the number of the swap.
            fixed: the fixed players of the pool.
        """
        self._settings = settings
        self._fixed = {each.name.text: each for each in fixed}
        self._scheduler = scheduler
        self._seed = seed
        self.rating = settings.initial_elo
        """Elo of the newest policy."""
        self.ghost_steps = 0
        """Agent steps of sides that were not learning."""
        self.finished = False
        """Whether it has used its step budget."""
        self.snapshots: list[Snapshot] = []
        """Snapshots, oldest first, at most ``window``."""
        self._sides: set[int] = set()
        self._opponents: dict[int, Snapshot | FixedOpponent | None] = {}
        self._saved_at = self._turn_began = self._swapped_at = self._swaps = 0
        self._turn = scheduler.turn
        """Number of the last turn for which opponents were drawn."""

    def register_side(self, team: int) -> None:
        """Adds a side of this behavior."""
        self._sides.add(team)
        self._scheduler.register_side(self, team)

    def remove_side(self, team: int) -> bool:
        """Removes a side without agents. Returns whether the learning side changed."""
        changed = self._scheduler.remove_side(self, team)
        if changed or team not in self._scheduler:
            self._sides.discard(team)
            self._opponents.pop(team, None)
        return changed

    @property
    def is_alone(self) -> bool:
        """Whether there is no other side to play against."""
        return self._scheduler.has_one_side

    def leave(self) -> bool:
        """Leaves self-play. Returns whether the learning side changed."""
        return self._scheduler.forget(self)

    def learns(self, team: int) -> bool:
        """Whether the side's trajectories are learned from."""
        return team == self._scheduler.learning

    @property
    def has_league(self) -> bool:
        """Whether its opponents or their draws differ from ML-Agents'."""
        return self._settings.has_league

    def opponent(self, team: int) -> Snapshot | FixedOpponent | None:
        """The opponent that a side plays as; None for the newest policy, which the learning side always uses."""
        return self._opponents.get(team)

    @property
    def learning_team(self) -> int:
        """The side whose turn it is."""
        return self._scheduler.learning

    def opponents(self) -> dict[int, Snapshot | FixedOpponent]:
        """The opponents that sides play as, by team id, without sides that use the newest policy."""
        return {team: opponent for team, opponent in self._opponents.items() if opponent is not None}

    def opponent_in_words(self, team: int) -> str:
        """The name of a side's player: ``latest``, ``snapshots``, or the name of a fixed opponent."""
        opponent = self.opponent(team)
        if opponent is None:
            return "latest"
        return opponent.name.text if isinstance(opponent, FixedOpponent) else "snapshots"

    def opponents_in_words(self) -> list[str]:
        """The names of the learner's present opponents, if they are drawn from a pool."""
        return self._scheduler.opponents_in_words()

    def rate(self, results: Sequence[float]) -> list[float]:
        """Updates ratings after games of the learning side, see ``TurnScheduler.rate``."""
        return self._scheduler.rate(self, results)

    def rating_of(self, team: int) -> float:
        """Elo of the side's player."""
        player = self.opponent(team)
        return self.rating if player is None else player.rating

    def add_to_rating(self, team: int, points: float) -> None:
        """Adds points to the rating of the side's player."""
        player = self.opponent(team)
        if player is None:
            self.rating += points
        else:
            player.rating += points

    def add_result(self, team: int, result: float) -> None:
        """Adds a game of the learner to its win rate against the side's player: 1 won, ½ drawn, 0 lost."""
        if (opponent := self.opponent(team)) is not None:
            opponent.results.add(result)

    def advance(self, step: int, weights: Callable[[], Weights], *, finished: bool) -> bool:
        """Takes a snapshot and ends the turn, if due. Call ``choose_opponents`` afterwards.

        Args:
            step: agent steps of the learning sides.
            weights: returns a copy of the present weights.
            finished: whether the step budget is used up.

        Returns:
            Whether the learning side changed.
        """
        self.finished = finished
        if not self.snapshots or step - self._saved_at >= self._settings.save_steps:
            newest = Snapshot(weights(), step, self.rating)
            self.snapshots = [*self.snapshots, newest][-self._settings.window :]
            self._saved_at = step
        if self._scheduler.learning not in self._sides or self._turn != self._scheduler.turn:
            return False
        due = self._scheduler.learning_side_finished or step - self._turn_began >= self._settings.team_change
        return due and self._scheduler.advance_turn()

    def choose_opponents(self, step: int) -> None:
        """Draws the players of the other sides, if a swap is due or the learning side changed."""
        changed = self._turn != self._scheduler.turn
        if changed:
            self._turn, self._turn_began = self._scheduler.turn, step
        if changed or self.ghost_steps - self._swapped_at >= max(self._settings.swap_steps, 1):
            self._swap()
        for team in self._ghost_sides():
            # At the start, and for sides that appear later.
            if team not in self._opponents:
                plays_itself = SELF in self._settings.opponents
                rng = np.random.default_rng([self._seed, self._swaps, team])
                self._opponents[team] = self.snapshots[-1] if plays_itself else self._draw(rng)

    def _swap(self) -> None:
        rng = np.random.default_rng([self._seed, self._swaps])
        self._opponents = {team: self._draw(rng) for team in self._ghost_sides()}
        self._swapped_at = self.ghost_steps
        self._swaps += 1

    def _draw(self, rng: np.random.Generator) -> Snapshot | FixedOpponent | None:
        plays_itself = SELF in self._settings.opponents
        if plays_itself and rng.random() < self._settings.play_against_latest_model_ratio:
            return None
        if not self.has_league:
            return self.snapshots[int(rng.integers(len(self.snapshots)))]
        pool = self._pool()
        weights = np.array(list(pool.values()))
        return list(pool)[int(rng.choice(len(pool), p=weights / weights.sum()))]

    def _pool(self) -> dict[Snapshot | FixedOpponent, float]:
        """All fixed opponents and snapshots with their weights. Snapshots share the weight of ``self``."""
        weights = self._settings.opponents
        pool: dict[Snapshot | FixedOpponent, float] = {}
        if SELF in weights:
            pool |= dict.fromkeys(self.snapshots, weights[SELF] / len(self.snapshots))
        pool |= {self._fixed[name]: weight for name, weight in weights.items() if name != SELF}
        return {
            each: weight * pfsp_weight(self._settings.pfsp_weighting, each.results.win_rate)
            for each, weight in pool.items()
        }

    def _ghost_sides(self) -> list[int]:
        return sorted(self._sides - {self._scheduler.learning})

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a run: tensors and plain Python values only."""
        played = [player for player in self._opponents.values() if isinstance(player, Snapshot)]
        known = list(dict.fromkeys([*self.snapshots, *played]))
        return {
            "learning": self._scheduler.learning,
            "turn": self._turn,
            "turn_began": self._turn_began,
            "rating": self.rating,
            "ghost_steps": self.ghost_steps,
            "saved_at": self._saved_at,
            "swapped_at": self._swapped_at,
            "swaps": self._swaps,
            "window": len(self.snapshots),
            "snapshots": [
                {"weights": dict(each.weights), "step": each.step, **_record_of(each)} for each in known
            ],
            "fixed": {name: {"step": each.step, **_record_of(each)} for name, each in self._fixed.items()},
            "players": {team: _saved_player(player, known) for team, player in self._opponents.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result. Raises KeyError if it is invalid."""
        known = [
            Snapshot(each["weights"], each["step"], each["rating"], Results(**each["results"]))
            for each in state["snapshots"]
        ]
        self.snapshots = known[: state["window"]]
        for name, saved in state["fixed"].items():
            if (each := self._fixed.get(name)) is not None:
                each.rating, each.results = saved["rating"], Results(**saved["results"])
                if each.step != saved["step"]:
                    _logger.warning(
                        "Opponent '%s' is of step %s now, it was of step %s: say which checkpoint is meant "
                        "(RUN@STEP), and it stays the same.", name, each.step, saved["step"],
                    )  # fmt: skip
        self._opponents = {}
        for team, player in state["players"].items():
            if not isinstance(player, str):
                self._opponents[team] = None if player == _LATEST else known[player]
            elif player in self._fixed:  # the next draw replaces a player that left the pool
                self._opponents[team] = self._fixed[player]
        self.rating, self.ghost_steps = state["rating"], state["ghost_steps"]
        self._saved_at, self._swapped_at = state["saved_at"], state["swapped_at"]
        self._swaps, self._turn, self._turn_began = state["swaps"], state["turn"], state["turn_began"]
        self._scheduler.resume(state["learning"], state["turn"])


def _record_of(opponent: Snapshot | FixedOpponent) -> dict[str, Any]:
    return {"rating": opponent.rating, "results": asdict(opponent.results)}


def _saved_player(player: Snapshot | FixedOpponent | None, known: Sequence[Snapshot]) -> int | str:
    """The key of a player in a checkpoint: the number of a snapshot, or a fixed opponent's name."""
    if isinstance(player, FixedOpponent):
        return player.name.text
    return _LATEST if player is None else known.index(player)
