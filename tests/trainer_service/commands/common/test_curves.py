"""Figures of curves agree with numbers worked on paper."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.commands.common.curves import Curve, band

# 0 until step 100, from there up to 10 at step 200, and 20 from step 300 on.
CURVE = Curve.of([(100, 1.0, 0.0), (200, 2.0, 10.0), (300, 4.0, 20.0), (1000, 9.0, 20.0)])


def test_final_scores_are_of_the_last_tenth() -> None:
    curve = Curve.of([(900, 1.0, 100.0), (901, 2.0, 4.0), (950, 3.0, 6.0), (1000, 4.0, 8.0)])
    assert curve.final == 6.0


def test_areas_are_mean_heights() -> None:
    assert CURVE.area(100, 200) == 5.0
    assert CURVE.area(150, 250) == 10.0  # from 5 to 15
    assert CURVE.area(200, 400) == (15.0 + 20.0) / 2
    assert np.isnan(CURVE.area(200, 200))


def test_thresholds_count_from_the_first_summary_that_has_them() -> None:
    assert CURVE.first_reaching(10.0) == (200, 2.0)
    assert CURVE.first_reaching(10.5) == (300, 4.0)
    assert CURVE.first_reaching(20.5) is None


def test_a_curve_ends_at_the_step_asked_for() -> None:
    cut = CURVE.until(299)
    assert cut is not None
    assert cut.steps.tolist() == [100, 200]
    assert CURVE.until(99) is None


def test_bands_interpolate_between_summaries() -> None:
    axes = [np.array([0, 10, 20]), np.array([5, 15])]
    averaged = band(axes, [np.array([0.0, 10.0, 20.0]), np.array([7.0, 7.0])], np.zeros(2, np.int64))
    assert averaged.x.tolist() == [5.0, 10.0, 15.0]  # where both have values
    assert averaged.iqm.tolist() == [6.0, 8.5, 11.0]  # 5, 10 and 15 beside 7
    assert averaged.low.tolist() == [5.0, 7.0, 7.0]  # of two runs one comes twice often enough
    assert averaged.high.tolist() == [7.0, 10.0, 15.0]


def test_bands_go_on_where_ended_runs_keep_their_last_value() -> None:
    axes = [np.array([1.0, 2.0]), np.array([1.0, 4.0])]
    values = [np.array([0.0, 10.0]), np.array([0.0, 30.0])]
    assert band(axes, values, np.zeros(2, np.int64)).x.tolist() == [1.0, 2.0]
    averaged = band(axes, values, np.zeros(2, np.int64), holds_last=True)
    assert averaged.x.tolist() == [1.0, 2.0, 4.0]
    assert averaged.iqm.tolist() == [0.0, 10.0, 20.0]


def test_long_curves_are_thinned() -> None:
    steps = np.arange(5000)
    averaged = band([steps], [2.0 * steps], np.zeros(1, np.int64))
    assert len(averaged.x) == 200
    assert averaged.iqm == pytest.approx(2.0 * averaged.x)
