"""Ratings, by hand."""

from __future__ import annotations

import pytest

from trainer_service.ops.elo import expected_result, rating_change


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


@pytest.mark.parametrize("difference", [0.0, 37.5, 4000.0])
@pytest.mark.parametrize("result", [0.0, 0.5, 1.0])
def test_what_one_wins_the_other_loses(difference: float, result: float) -> None:
    change = rating_change(1200.0 + difference, 1200.0, result)
    assert rating_change(1200.0, 1200.0 + difference, 1.0 - result) == pytest.approx(-change, abs=1e-12)
