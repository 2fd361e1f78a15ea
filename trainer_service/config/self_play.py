"""Training against earlier selves: the ``self_play`` of a behavior."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trainer_service.config.section import Section
from trainer_service.config.values import Count, Number, PositiveCount


def _five_snapshots(validated: dict[str, Any]) -> int:
    save_steps: int = validated["save_steps"]
    return 5 * save_steps


class SelfPlaySettings(Section):
    """One team learns; the others act with snapshots of it."""

    save_steps: PositiveCount = 20000
    """Trainer steps between snapshots."""

    team_change: PositiveCount = Field(default_factory=_five_snapshots)
    """Trainer steps after which another team learns; five times save_steps where not given."""

    swap_steps: Count = 2000
    """Opponents' steps between swaps of their snapshot."""

    window: PositiveCount = 10
    """Snapshots kept."""

    play_against_latest_model_ratio: Number = 0.5
    """Probability of meeting the current policy instead of a snapshot."""

    initial_elo: Number = 1200.0
    """Rating at the start."""
