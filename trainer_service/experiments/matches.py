"""Ratings of runs by games of each against each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer_service.errors import UserError
from trainer_service.experiments.jobs import Job
from trainer_service.ops.ratings import elo_difference


def cross_play(runs: Sequence[str], results_dir: Path, games: int) -> Job:
    """Returns the job that plays a number of games of each pair of runs. Actions are sampled, as in training."""
    first, *others = runs
    arguments = (
        "evaluate", first, "--against", *others, "--cross-play", "--stochastic", "--json",
        f"--episodes={games}", f"--results-dir={results_dir}",
    )  # fmt: skip
    return Job("games", arguments, results_dir / "games.log")


def ratings(output: str) -> dict[str, float]:
    """Returns the rating of each run from the output of ``cross_play``.

    A rating is the Elo difference to the average opponent, by the share of won games. All play equally many games
    against each other, so the order is that of ratings by maximum likelihood. Half a won and half a lost game more
    keep ratings finite.

    Raises:
        UserError: the output has no result.
    """
    won: dict[str, float] = {}
    games: dict[str, int] = {}
    for match in _matches(output):
        points, count = match["won"] + match["drawn"] / 2, match["games"]
        for name, share in ((match["player"], points), (match["opponent"], count - points)):
            won[name] = won.get(name, 0.0) + share
            games[name] = games.get(name, 0) + count
    return {name: elo_difference((won[name] + 0.5) / (games[name] + 1)) for name in won}


def _matches(output: str) -> list[dict[str, Any]]:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            matches: list[dict[str, Any]] = json.loads(line)["matches"]
            return matches
    raise UserError(f"population: no result of the games between members: {output[-300:]}")
