"""Running moments of observations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Running statistics of F features. As in ML-Agents, they start with one pseudo-row of mean 0 and square 1."""

    rows: Tensor
    """Number of rows plus one, float64 scalar."""

    mean: Tensor
    """Shape [F], float64."""

    sum_squares: Tensor
    """Σ of squared deviations, starting at 1; divided by ``rows`` it is the variance. Shape [F], float64."""


def initial_moments(features: int) -> Moments:
    """Moments before any data: mean 0, variance 1."""
    zeros, ones = torch.zeros(features, dtype=torch.float64), torch.ones(features, dtype=torch.float64)
    return Moments(torch.ones((), dtype=torch.float64), zeros, ones)


WIDEST = 100.0
"""Largest deviation of a row from the mean, in standard deviations."""

ENOUGH_ROWS = 1000
"""Rows after which the running moments define outliers."""

ENOUGH_IN_A_BATCH = 100
"""Before that, a batch of this size defines them."""

_SMALLEST_DEVIATION = 0.1
"""Lower limit of σ: a flag that is 1 for the first time is no outlier, however constant it was before."""


def without_outliers(moments: Moments, rows: Tensor) -> Tensor:
    """``rows`` [N, F], float64, with outliers clipped, so that they do not distort the moments permanently.

    clip(x, μ − r, μ + r) with r = 100 · max(σ, 0.1), after a thousand rows. Before that, a batch of a hundred rows or
    more uses its median as μ, and its 99th percentile of |x − median| as σ. A smaller batch is returned unchanged.

    Values within the range are unchanged bit for bit. The moments follow a feature that really moves that far: σ grows
    by up to a hundred times with each batch.
    """
    if moments.rows > ENOUGH_ROWS:
        middle, deviation = moments.mean, (moments.sum_squares / moments.rows).sqrt()
    elif len(rows) >= ENOUGH_IN_A_BATCH:
        middle = rows.median(dim=0).values
        deviation = (rows - middle).abs().kthvalue(len(rows) * 99 // 100, dim=0).values
    else:
        return rows
    reach = WIDEST * deviation.clamp(min=_SMALLEST_DEVIATION)
    return torch.clamp(rows, middle - reach, middle + reach)


def updated_moments(moments: Moments, rows: Tensor) -> Moments:
    """Updates moments with ``rows`` [N, F], all N at once (the batch form of Welford's recurrence).

    n' = n + N ;  μ' = μ + Σ(x − μ)/n' ;  M' = M + Σ(x − μ')(x − μ)
    """
    rows = rows.double()
    count = moments.rows + len(rows)
    deviation = rows - moments.mean
    mean = moments.mean + deviation.sum(dim=0) / count
    sum_squares = moments.sum_squares + ((rows - mean) * deviation).sum(dim=0)
    return Moments(count, mean, sum_squares)
