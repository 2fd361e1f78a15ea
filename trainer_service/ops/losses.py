"""Losses as their papers state them. B rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer_service.ops import distributions as dist


def clipped_surrogate_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, *, clip_epsilon: float
) -> Tensor:
    """−L^CLIP of PPO, eq. 7 of Schulman et al. 2017 (arXiv:1707.06347). All inputs [B]; returns a scalar."""
    ratio = torch.exp(log_prob - old_log_prob)
    clipped = torch.clamp(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean()


MAX_WEIGHT = 2.0
"""Where importance weights are truncated: a step that an older policy hardly ever took must not outweigh all others."""


def importance_weights(log_ratio: Tensor) -> Tensor:
    """min(π_prox/π_behav, 2), the weights of the decoupled objective of PPO. log_ratio: ln π_prox/π_behav. Shape kept.

        L = E[ w · min(r A, clip(r, 1−ε, 1+ε) A) ],  r = π_θ/π_prox,  w = π_prox/π_behav

    Hilton, Cobbe & Schulman 2021, "Batch size-invariance for policy optimization" (arXiv:2110.00641): the policy that
    is not to be left too fast, π_prox, is another one than that which acted, π_behav. Here π_prox is the policy at the
    start of an update, and weights are truncated (Ionides 2008, "Truncated importance sampling"). Since w ≥ 0 it may as
    well stand inside the minimum: −L is ``clipped_surrogate_loss`` against π_prox, with w A in the place of A.
    """
    return log_ratio.exp().clamp(max=MAX_WEIGHT)


def clipped_value_loss(value: Tensor, old_value: Tensor, return_: Tensor, *, clip_range: Tensor) -> Tensor:
    """Squared error that stops pulling once V has left V_old ± range: mean max((V−R)², (V_clip−R)²).

        V_clip = V_old + clip(V − V_old, −range, range)

    The pessimistic twin of the clipped surrogate, from the reference code of Schulman et al. 2017.
    value, old_value, return_: [B, signals]; clip_range: [signals], in reward units. Returns a scalar.
    """
    clipped = old_value + torch.clamp(value - old_value, -clip_range, clip_range)
    return torch.maximum((value - return_) ** 2, (clipped - return_) ** 2).mean()


def huber(errors: Tensor, delta: float) -> Tensor:
    """½ e² up to ``delta``, and δ(|e| − ½ δ) beyond. Shape kept."""
    return torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=delta)


def squared(errors: Tensor, delta: float) -> Tensor:
    """½ e², however large: ``huber`` with no end to its inside. Shape kept."""
    return 0.5 * errors.square()


class PPOBatch(NamedTuple):
    """A minibatch of PPO: actions, their advantages and returns, and the values of the old critic."""

    continuous_actions: Tensor
    """[B, C]"""

    discrete_actions: Tensor
    """int64 [B, branches], each counted from the start of all K choices (see choice_indices)."""

    allowed_actions: Tensor
    """bool [B, K]"""

    old_log_prob: Tensor
    """[B]"""

    advantage: Tensor
    """[B]"""

    old_value: Tensor
    """[B, signals]"""

    return_: Tensor
    """[B, signals]"""


def ppo_loss(
    mean: Tensor,
    log_sigma: Tensor,
    logits: Tensor,
    values: Tensor,
    batch: PPOBatch,
    *,
    branches: Sequence[int],
    clip_epsilon: float,
    value_clip_range: Tensor,
    value_coefficient: float,
    entropy_coefficient: float,
) -> Tensor:
    """PPO's whole loss, eq. 9 of Schulman et al. 2017 (arXiv:1707.06347): −L^CLIP + c_v L_V − β H. A scalar.

    mean: [B, C]; log_sigma: [C]; logits: [B, K] before masking; values: [B, signals]. ``ops.ppo_gradient`` has its
    gradient by these four in closed form.
    """
    log_prob, entropy = torch.zeros_like(batch.advantage), values.new_zeros(())
    if mean.shape[1]:
        log_prob = dist.gaussian_log_prob(batch.continuous_actions, mean, log_sigma)
        entropy = dist.gaussian_entropy(log_sigma)
    if logits.shape[1]:
        log_choices = dist.masked_log_softmax(logits, batch.allowed_actions, branches)
        log_prob = log_prob + dist.categorical_log_prob(log_choices, batch.discrete_actions)
        entropy = entropy + dist.categorical_entropy(log_choices).mean()
    policy_loss = clipped_surrogate_loss(
        log_prob, batch.old_log_prob, batch.advantage, clip_epsilon=clip_epsilon
    )
    value_loss = clipped_value_loss(values, batch.old_value, batch.return_, clip_range=value_clip_range)
    return policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
