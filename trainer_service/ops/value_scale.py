"""The running scale of returns, for critics with normalized outputs. H heads, one per reward signal."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_DECAY = 0.99999
_LEAST_WEIGHT, _LEAST_VARIANCE = 1e-5, 1e-2


class ReturnMoments(NamedTuple):
    """Exponential moving averages before bias correction. float64, [H], and [] for the weight.

    Float32 is not precise enough for weights of 10⁻⁵ and the difference in ``scale_of``: after 10 000 minibatches of
    N(1000, 5) the deviation was 0.1.
    """

    mean: Tensor
    square: Tensor
    weight: Tensor


def initial_return_moments(heads: int) -> ReturnMoments:
    """Moments before the first return."""
    mean, square = torch.zeros((2, heads), dtype=torch.float64)
    return ReturnMoments(mean, square, torch.zeros((), dtype=torch.float64))


def updated_return_moments(moments: ReturnMoments, returns: Tensor) -> ReturnMoments:
    """Updates moments with a batch of returns, [B, H].

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
    """μ = m/d and σ = √max(q/d − μ², 0.01), each [H], float64. d is at least 10⁻⁵: initially μ is 0 and σ 0.1."""
    weight = moments.weight.clamp(min=_LEAST_WEIGHT)
    mean = moments.mean / weight
    return mean, (moments.square / weight - mean.square()).clamp(min=_LEAST_VARIANCE).sqrt()


def preserved(
    weight: Tensor, bias: Tensor, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """PopArt, van Hasselt et al. 2016 (arXiv:1602.07714): rescales a last layer so that its outputs are preserved.

        W ← W σ/σ',  b ← (σ b + μ − μ')/σ'

    weight: [H, F]; bias: [H]; before, after: (μ, σ), each [H]. Computed in the precision of the scales. Dtypes kept.
    """
    (mean, deviation), (new_mean, new_deviation) = before, after
    moved = (deviation * bias + mean - new_mean) / new_deviation
    return (weight * (deviation / new_deviation).unsqueeze(1)).to(weight.dtype), moved.to(bias.dtype)
