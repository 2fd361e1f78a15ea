"""Ratings and win rates, by hand."""

from __future__ import annotations

import math

import pytest

from trainer_service.ops.ratings import (
    elo_difference,
    expected_result,
    pfsp_weight,
    rating_change,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("rating", "opponent", "expected"),
    [
        (1200.0, 1200.0, 1 / 2),
        (1600.0, 1200.0, 10 / 11),  # 400 points: ten games won for one that is lost
        (1200.0, 1600.0, 1 / 11),
        (2000.0, 1200.0, 100 / 101),
    ],
)
def test_expected_results_by_hand(rating: float, opponent: float, expected: float) -> None:
    assert expected_result(rating, opponent) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rating", "opponent", "result", "change"),
    [
        (1200.0, 1200.0, 1.0, 0.5),
        (1200.0, 1200.0, 0.5, 0.0),
        (1200.0, 1200.0, 0.0, -0.5),
        (1600.0, 1200.0, 1.0, 1 / 11),
        (1600.0, 1200.0, 0.0, -10 / 11),
        (1600.0, 1200.0, 0.5, 1 / 2 - 10 / 11),
    ],
)
def test_changes_by_hand(rating: float, opponent: float, result: float, change: float) -> None:
    assert rating_change(rating, opponent, result) == pytest.approx(change)


def test_differences_by_hand() -> None:
    assert elo_difference(10 / 11) == pytest.approx(400.0)
    assert elo_difference(0.5) == 0.0
    assert (elo_difference(0.0), elo_difference(1.0)) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("won", "games", "low", "high"),
    [
        # z = 2: z²/n = 0.4; (0.5 + 0.2 ± √(0.1 + 0.04)) / 1.4
        (5, 10, (0.7 - math.sqrt(0.14)) / 1.4, (0.7 + math.sqrt(0.14)) / 1.4),
        # z²/n = 1; (1 + 0.5 ± √(0 + 0.25)) / 2
        (4, 4, 0.5, 1.0),
        (0, 4, 0.0, 0.5),
        # z²/n = 0.04; (0.8 + 0.02 ± √(0.0064 + 0.0004)) / 1.04, draws among them
        (80.0, 100, (0.82 - math.sqrt(0.0068)) / 1.04, (0.82 + math.sqrt(0.0068)) / 1.04),
    ],
)
def test_wilson_intervals_by_hand(won: float, games: int, low: float, high: float) -> None:
    assert wilson_interval(won, games, z=2.0) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("weighting", "win_rate", "weight"),
    [
        ("uniform", 0.9, 1.0),
        ("hard", 0.5, 0.25),
        ("hard", 0.0, 1.0),
        ("hard", 1.0, 0.01),
        ("variance", 0.5, 0.25),
        ("variance", 0.9, 0.09),
        ("variance", 0.0, 0.01),
    ],
)
def test_weights_of_opponents_by_hand(weighting: str, win_rate: float, weight: float) -> None:
    assert pfsp_weight(weighting, win_rate) == pytest.approx(weight)
