"""Running moments of observations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Running statistics of F features, in ML-Agents' convention: one pseudo-row of mean 0 and square 1 first."""

    rows: Tensor
    """Rows seen plus one, float64 scalar."""

    mean: Tensor
    """Shape [F], float64."""

    sum_squares: Tensor
    """Σ of squared deviations, starting at 1; divided by ``rows`` it is the variance. Shape [F], float64."""


def initial_moments(features: int, device: torch.device | None = None) -> Moments:
    """Moments before any data: mean 0, variance 1."""
    return Moments(
        torch.ones((), dtype=torch.float64, device=device),
        torch.zeros(features, dtype=torch.float64, device=device),
        torch.ones(features, dtype=torch.float64, device=device),
    )


WIDEST = 100.0
"""Deviations from the mean that a row may count for."""

ENOUGH_ROWS = 1000
"""From so many on, moments say what is ordinary."""

ENOUGH_IN_A_BATCH = 100
"""Before that a batch says so itself, if it has so many."""

_SMALLEST_DEVIATION = 0.1
"""A flag that is raised for the first time is no outlier, however little a feature varied before."""


def without_outliers(moments: Moments, rows: Tensor) -> Tensor:
    """``rows`` [N, F], float64, with what is out of all proportion brought nearer, lest it spoil moments for good.

    clip(x, μ − r, μ + r) with r = 100 · max(σ, 0.1), once a thousand rows were seen. In a batch of a hundred rows
    or more that comes before, the median stands for μ and the 99th percentile of |x − median| for σ. Fewer rows stay
    as they are.

    Whatever lies within is returned bit by bit. A feature that really moves that far is followed: σ grows by up to a
    hundred times with each batch.
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
    """Moments after ``rows`` [N, F] too, all N at once (the batch form of Welford's recurrence).

    n' = n + N ;  μ' = μ + Σ(x − μ)/n' ;  M' = M + Σ(x − μ')(x − μ)
    """
    rows = rows.double()
    count = moments.rows + len(rows)
    deviation = rows - moments.mean
    mean = moments.mean + deviation.sum(dim=0) / count
    sum_squares = moments.sum_squares + ((rows - mean) * deviation).sum(dim=0)
    return Moments(count, mean, sum_squares)
