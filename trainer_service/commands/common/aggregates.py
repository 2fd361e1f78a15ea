"""Aggregates of scores over runs, and how far chance may have moved them.

Interquartile means with stratified bootstrap intervals (Agarwal et al. 2021, "Deep reinforcement learning at the edge
of the statistical precipice"): means of a few runs follow outliers, and medians waste what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from unity_bridge.arrays import Floats, Integers

CONFIDENCE = 0.95
RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A statistic of some runs with its bootstrap interval."""

    value: float
    low: float
    """The interval's lower end; NaN where there are too few runs for one."""
    high: float


def interquartile_mean(scores: Floats) -> Floats:
    """The mean of the middle half: without the ⌊N/4⌋ lowest and highest of N scores. Shape [..., N] to [...]."""
    count = scores.shape[-1]
    cut = count // 4
    return np.asarray(np.sort(scores, axis=-1)[..., cut : count - cut].mean(axis=-1))


def probability_of_improvement(scores: Floats, others: Floats) -> Floats:
    """The share of pairs in which a score beats another's, ties counting half. Shapes [..., N], [..., M] to [...].

    The statistic of Mann and Whitney (1947), over N·M.
    """
    difference = scores[..., :, None] - others[..., None, :]
    return np.asarray(np.mean((difference > 0) + 0.5 * (difference == 0), axis=(-2, -1)))


def performance_profile(scores: Floats, thresholds: Floats) -> Floats:
    """The share of scores above each threshold. Shapes [..., N], [T] to [..., T]."""
    return np.asarray(np.mean(scores[..., None, :] > thresholds[:, None], axis=-1))


def resampled(strata: Integers, resamples: int = RESAMPLES) -> Integers:
    """Bootstrap samples: for each run another one, drawn with replacement from those of its stratum.

    Args:
        strata: the stratum of each run. Shape [N].
        resamples: R, how many samples.

    Returns:
        Indices of runs, shape [R, N].
    """
    generator = np.random.default_rng(0)  # one seed: equal scores have equal intervals
    drawn = np.empty((resamples, len(strata)), np.int64)
    for stratum in np.unique(strata):
        (own,) = np.nonzero(strata == stratum)
        drawn[:, own] = own[generator.integers(len(own), size=(resamples, len(own)))]
    return drawn


def percentile_interval(samples: Floats, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The percentiles of bootstrapped statistics between which ``confidence`` of them lie. samples: shape [R]."""
    outside = (1.0 - confidence) / 2.0
    low, high = np.quantile(samples, (outside, 1.0 - outside))
    return float(low), float(high)


def estimate(
    statistic: Callable[[Floats], Floats],
    scores: Floats,
    strata: Integers,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A statistic of runs, with its stratified bootstrap interval.

    Args:
        statistic: from shape [..., N] to [...].
        scores: one of each run. Shape [N].
        strata: the stratum of each run, within which they are resampled: runs of one task and configuration.
            Shape [N].
        confidence: of the interval.
        resamples: how many bootstrap samples.

    Returns:
        The estimate; without an interval where no stratum has two runs, for then nothing is known of chance.
    """
    value = float(statistic(scores))
    if len(np.unique(strata)) == len(strata):
        return Estimate(value, np.nan, np.nan)
    samples = statistic(scores[resampled(strata, resamples)])
    return Estimate(value, *percentile_interval(samples, confidence))
