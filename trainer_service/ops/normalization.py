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
    """Before any data: mean 0, variance 1."""
    return Moments(
        torch.ones((), dtype=torch.float64, device=device),
        torch.zeros(features, dtype=torch.float64, device=device),
        torch.ones(features, dtype=torch.float64, device=device),
    )


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
