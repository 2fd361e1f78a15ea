"""The ``self_play`` of a behavior: turns, snapshots, and the pool of opponents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from trainer_service.config.players import PlayerName, parse_player
from trainer_service.config.section import Section, names_or_mapping, names_or_mapping_schema
from trainer_service.config.values import Count, Number, Positive, PositiveCount, problem
from trainer_service.errors import ConfigError


def _five_snapshots(validated: dict[str, Any]) -> int:
    save_steps: int = validated["save_steps"]
    return 5 * save_steps


SELF = "self"
"""The entry of a pool of opponents that stands for the policy itself, as it is and as it was."""

PFSPWeighting = Literal["uniform", "hard", "variance"]


def _as_opponents(value: Any) -> Any:
    """Reads names of players, or weights by their names."""
    what = "a list of players, or a mapping from players to weights"
    opponents = names_or_mapping(value, what, "the name of a player", 1.0)
    for name in opponents:
        try:
            if name != SELF:
                parse_player(name)
        except ConfigError as error:
            raise problem(str(error)) from None
    if not opponents:
        raise problem("expected at least one player, got an empty list")
    return opponents


OpponentShares = Annotated[
    dict[str, Positive],
    BeforeValidator(_as_opponents),
    WithJsonSchema(names_or_mapping_schema(1, {"type": "number", "exclusiveMinimum": 0})),
]
"""Weights of players, by their names."""


class SelfPlaySettings(Section):
    """Self-play: one side learns, the others act with snapshots of it."""

    save_steps: PositiveCount = 20000
    """Trainer steps between snapshots."""

    team_change: PositiveCount = Field(default_factory=_five_snapshots)
    """Trainer steps after which another side learns; five times save_steps where not given."""

    swap_steps: Count = 2000
    """Opponents' steps between swaps of their snapshot."""

    window: PositiveCount = 10
    """Snapshots kept."""

    play_against_latest_model_ratio: Number = 0.5
    """Probability of meeting the current policy instead of a snapshot."""

    initial_elo: Number = 1200.0
    """Rating at the start."""

    opponents: OpponentShares = Field(default={SELF: 1.0})
    """Pool of opponents, with weights where it is a mapping: self (snapshots and the newest policy), random, expert
    (the scene's own), a run, RUN@STEP, RUN@best or a checkpoint's file."""

    pfsp_weighting: PFSPWeighting = "uniform"
    """Factor of an opponent's weight by the learner's win rate p against it: hard (1 − p)², variance p (1 − p)."""

    @property
    def fixed_opponents(self) -> list[PlayerName]:
        """Players of the pool that do not change."""
        return [parse_player(text) for text in self.opponents if text != SELF]

    @property
    def has_league(self) -> bool:
        """Whether opponents are others than in ML-Agents, or are drawn in another way."""
        return list(self.opponents) != [SELF] or self.pfsp_weighting != "uniform"
