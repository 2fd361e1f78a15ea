"""The running scale of returns, for critics that are trained in units of it. H heads, one per reward signal."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_DECAY = 0.99999
_LEAST_WEIGHT, _LEAST_VARIANCE = 1e-5, 1e-2


class ReturnMoments(NamedTuple):
    """Averages that forget slowly, before their start is corrected for. float64, [H], and [] for the weight.

    In float32 each minibatch's hundred-thousandth is lost beside the sum, and ``scale_of`` subtracts what is left:
    after 10 000 minibatches of N(1000, 5) the deviation was 0.1.
    """

    mean: Tensor
    square: Tensor
    weight: Tensor


def initial_return_moments(heads: int) -> ReturnMoments:
    """Moments before the first return."""
    mean, square = torch.zeros((2, heads), dtype=torch.float64)
    return ReturnMoments(mean, square, torch.zeros((), dtype=torch.float64))


def updated_return_moments(moments: ReturnMoments, returns: Tensor) -> ReturnMoments:
    """Counts a batch of returns in, [B, H].

        m ← β m + (1−β) mean(R),  q ← β q + (1−β) mean(R²),  d ← β d + (1−β),  β = 0.99999

    As in the code of Yu et al. 2022 (arXiv:2103.01955).
    """
    if len(returns) == 0:
        return moments
    returns = returns.double()
    batch = (returns.mean(dim=0), returns.square().mean(dim=0), torch.ones_like(moments.weight))
    return ReturnMoments(
        *(old * _DECAY + new * (1.0 - _DECAY) for old, new in zip(moments, batch, strict=True))
    )


def scale_of(moments: ReturnMoments) -> tuple[Tensor, Tensor]:
    """μ = m/d and σ = √max(q/d − μ², 0.01), each [H], float64. With no return yet, d counts as 10⁻⁵: μ 0 and σ 0.1."""
    weight = moments.weight.clamp(min=_LEAST_WEIGHT)
    mean = moments.mean / weight
    return mean, (moments.square / weight - mean.square()).clamp(min=_LEAST_VARIANCE).sqrt()


def preserved(
    weight: Tensor, bias: Tensor, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """PopArt, van Hasselt et al. 2016 (arXiv:1602.07714): a last layer that means the same in the new scale.

        W ← W σ/σ',  b ← (σ b + μ − μ')/σ'

    weight: [H, F]; bias: [H]; before, after: (μ, σ), each [H]. Computed in the scales' precision, dtypes kept.
    """
    (mean, deviation), (new_mean, new_deviation) = before, after
    moved = (deviation * bias + mean - new_mean) / new_deviation
    return (weight * (deviation / new_deviation).unsqueeze(1)).to(weight.dtype), moved.to(bias.dtype)
