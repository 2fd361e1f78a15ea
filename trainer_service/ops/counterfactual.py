"""COMA's mathematics, Foerster et al. 2018 (arXiv:1705.08926). B rows, A choices."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def explored_log_probs(log_probs: Tensor, allowed: Tensor | None, exploration: float) -> Tensor:
    """ln π_ε with π_ε(a) = (1−ε) π(a) + ε/(allowed choices) for allowed choices.

    log_probs: ln π of the allowed choices, [B, A]; exploration: ε in [0, 1]. In log-space, so that no chosen action
    ever has probability 0.
    """
    if exploration == 0.0:
        return log_probs
    if allowed is None:
        uniform = torch.full_like(log_probs, -math.log(log_probs.shape[1]))
    else:
        uniform = -allowed.sum(dim=1, keepdim=True).to(log_probs.dtype).log().expand_as(log_probs)
    mixed = torch.logaddexp(
        log_probs + math.log1p(-min(exploration, 1.0 - 1e-7)), uniform + math.log(exploration)
    )
    return mixed if allowed is None else torch.where(allowed, mixed, log_probs)


def counterfactual_baseline(q: Tensor, log_probs: Tensor) -> Tensor:
    """Σ_a π(a) Q(a): the expected value of the agent's choice, with the other agents' actions unchanged.

    q: [B, A, …]; log_probs: ln π of the acting policy, [B, A]. Returns [B, …].
    """
    probabilities = log_probs.exp().view(*log_probs.shape, *([1] * (q.dim() - 2)))
    # A forbidden choice has probability 0, but its value is arbitrary.
    return torch.where(probabilities > 0.0, probabilities * q, 0.0).sum(dim=1)
