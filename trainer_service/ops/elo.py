"""Elo ratings of players that meet in games."""

from __future__ import annotations

import math

K = 1.0
"""The most that a game moves a rating, as in ML-Agents. Chess has 10 to 40; games are cheap here."""

_SCALE = 400.0
"""Points between two players when one wins ten times as often as the other."""


def expected_result(rating: float, opponent: float) -> float:
    """Expected result of a game, from 0 (always lost) to 1: 1 / (1 + 10^((O − R)/400)), Elo 1978."""
    return 1.0 / (1.0 + math.pow(10.0, (opponent - rating) / _SCALE))


def rating_change(rating: float, opponent: float, result: float) -> float:
    """Rating points that a game adds for the one and takes from the other. result: 1 won, ½ drawn, 0 lost."""
    return K * (result - expected_result(rating, opponent))
