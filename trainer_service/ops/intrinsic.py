"""Intrinsic rewards: prediction errors, and the scale of their discounted sums. B rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.ops import distributions as dist


def forward_error(predicted: Tensor, features: Tensor) -> Tensor:
    """½ ‖φ̂(s') − φ(s')‖², eq. 5 and 6 of Pathak et al. 2017 (arXiv:1705.05363). Both [B, F]; returns [B]."""
    return 0.5 * (predicted - features).square().sum(dim=-1)


def inverse_error(
    continuous_prediction: Tensor,
    continuous_actions: Tensor,
    logits: Tensor,
    discrete_actions: Tensor,
    branches: Sequence[int],
) -> Tensor:
    """Error of an inverse model's predicted actions: Σ (â − a)² − Σ_branches ln p(choice).

    continuous_prediction, continuous_actions: [B, C]; logits: [B, K], branches side by side; discrete_actions:
    int64 [B, branches], offsets included (see ``choice_offsets``). Returns [B].
    """
    error = (continuous_prediction - continuous_actions).square().sum(dim=-1)
    if not branches:
        return error
    log_probs = dist.masked_log_softmax(logits, None, branches)
    return error - dist.categorical_log_prob(log_probs, discrete_actions)


def distillation_error(predicted: Tensor, target: Tensor) -> Tensor:
    """‖f̂(s) − f(s)‖², section 2.2 of Burda et al. 2019 (arXiv:1810.12894). Both [B, F]; returns [B]."""
    return (predicted - target).square().sum(dim=-1)


class ReturnScale(NamedTuple):
    """Running mean square of a reward's discounted sums over time."""

    rows: float
    """Number of counted sums."""

    mean_square: float

    @property
    def deviation(self) -> float:
        """√(mean R²), the distance of the sums from zero. 0 before the first sum."""
        return float(self.mean_square**0.5)


def updated_scale(scale: ReturnScale, sums: NDArray[np.float64]) -> ReturnScale:
    """The scale after N more steps, from their discounted sums R_t = γ R_{t−1} + r_t.

        n' = n + N ;  m' = m + N (mean R² − m)/n'

    After section 2.4 of Burda et al. 2019. The deviation is from zero, not from the mean. Otherwise a constant reward
    would be divided by zero.

    sums: see ``discounted_sums_so_far``. Shape [N].
    """
    if len(sums) == 0:
        return scale
    rows = scale.rows + len(sums)
    mean_square = float(np.square(sums).mean())
    return ReturnScale(rows, scale.mean_square + len(sums) * (mean_square - scale.mean_square) / rows)
