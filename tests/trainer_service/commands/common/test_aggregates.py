"""Aggregates over runs agree with numbers worked on paper."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.commands.common.aggregates import (
    estimate,
    interquartile_mean,
    percentile_interval,
    probability_of_improvement,
    resampled,
)


@pytest.mark.parametrize(
    ("scores", "mean"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # a quarter of three is no whole run
        ([100.0, 1.0, 3.0, -50.0], 2.0),
        ([0.0, 1.0, 2.0, 6.0, 99.0], 3.0),  # ⌊5/4⌋ = 1 at each end
        ([70.0, 0.0, 20.0, 30.0, 40.0, 50.0, 60.0, 10.0], 35.0),
    ],
)
def test_a_quarter_is_left_out_at_each_end(scores: list[float], mean: float) -> None:
    assert interquartile_mean(np.array(scores)) == mean


def test_ties_count_half_in_the_probability_of_improvement() -> None:
    # Of the pairs (2, 1), (2, 2), (2, 5), (9, 1), (9, 2), (9, 5) four are won, one is drawn.
    share = probability_of_improvement(np.array([2.0, 9.0]), np.array([1.0, 2.0, 5.0]))
    assert share == pytest.approx(4.5 / 6)


def test_runs_are_resampled_within_their_stratum() -> None:
    drawn = resampled(np.array([7, 3, 7, 7]), 200)
    assert (drawn[:, 1] == 1).all()
    assert set(drawn[:, [0, 2, 3]].ravel().tolist()) == {0, 2, 3}


def test_intervals_are_percentiles() -> None:
    samples = np.arange(101.0)
    assert percentile_interval(samples, 0.95) == pytest.approx((2.5, 97.5))
    assert percentile_interval(samples, 0.5) == pytest.approx((25.0, 75.0))


def test_intervals_are_those_of_the_exact_bootstrap() -> None:
    # Of [0, 0, 0, 1] a sample has K ones, binomial with 4 and ¼; without its lowest and highest the mean is 0 for
    # K ≤ 1 (probability 0.738), ½ for K = 2 (0.211), 1 for more (0.051).
    scores, strata = np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(4, np.int64)
    assert estimate(interquartile_mean, scores, strata, confidence=0.8) == (0.0, 0.0, 0.5)
    assert estimate(interquartile_mean, scores, strata, confidence=0.95) == (0.0, 0.0, 1.0)
    assert estimate(interquartile_mean, scores, strata, confidence=0.4) == (0.0, 0.0, 0.0)


def test_single_runs_have_no_interval() -> None:
    value, low, high = estimate(interquartile_mean, np.array([4.0]), np.array([0]))
    assert value == 4.0
    assert np.isnan([low, high]).all()
