"""Losses as their papers state them. B rows."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, *, clip_epsilon: float
) -> Tensor:
    """−L^CLIP of PPO, eq. 7 of Schulman et al. 2017 (arXiv:1707.06347). All inputs [B]; returns a scalar."""
    ratio = torch.exp(log_prob - old_log_prob)
    clipped = torch.clamp(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


MAX_WEIGHT = 2.0
"""Upper limit of importance weights, so that a step which an older policy almost never took cannot dominate."""


def importance_weights(log_ratio: Tensor) -> Tensor:
    """min(π_prox/π_behav, 2), the weights of the decoupled objective of PPO. log_ratio: ln π_prox/π_behav. Shape kept.

        L = E[ w · min(r A, clip(r, 1−ε, 1+ε) A) ],  r = π_θ/π_prox,  w = π_prox/π_behav

    Hilton, Cobbe & Schulman 2021, "Batch size-invariance for policy optimization" (arXiv:2110.00641): the proximal
    policy π_prox of the clip differs from the acting policy π_behav. Here π_prox is the policy at the start of an
    update, and weights are truncated (Ionides 2008, "Truncated importance sampling"). Since w ≥ 0, it can move inside
    the minimum: −L is ``clipped_surrogate_loss`` against π_prox, with w A in place of A.
    """
    return log_ratio.exp().clamp(max=MAX_WEIGHT)


def clipped_value_loss(value: Tensor, old_value: Tensor, return_: Tensor, *, clip_range: Tensor) -> Tensor:
    """Squared error with the value clipped to V_old ± range: mean max((V−R)², (V_clip−R)²).

        V_clip = V_old + clip(V − V_old, −range, range)

    The analog of the clipped surrogate, from the reference code of Schulman et al. 2017. value, old_value, return_:
    [B, signals]; clip_range: [signals], in reward units. Returns a scalar.
    """
    clipped = old_value + torch.clamp(value - old_value, -clip_range, clip_range)
    return torch.maximum((value - return_) ** 2, (clipped - return_) ** 2).mean()


def huber(errors: Tensor, delta: float) -> Tensor:
    """½ e² up to ``delta``, and δ(|e| − ½ δ) beyond. Shape kept."""
    return torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=delta)


def squared(errors: Tensor, delta: float) -> Tensor:
    """½ e² for every e; ``huber`` without a limit. Shape kept."""
    return 0.5 * errors.square()
