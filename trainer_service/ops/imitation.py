"""Mathematics of imitation: GAIL's discriminator, its bottleneck, behavioral cloning. B rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

_FLOOR = 1e-7
"""Limits the reward of a certain expert step to 16.1."""


def discriminator_loss(expert_logits: Tensor, policy_logits: Tensor) -> Tensor:
    """−E_expert[ln D] − E_policy[ln(1 − D)], eq. 15 of Ho & Ermon 2016 (arXiv:1606.03476) with D for the expert.

    D = σ(logit). Both [B]; returns a scalar.
    """
    return functional.softplus(-expert_logits).mean() + functional.softplus(policy_logits).mean()


def imitation_reward(logits: Tensor) -> Tensor:
    """−ln(1 − D (1 − 10⁻⁷)): never negative; ln 2 if D cannot distinguish expert and policy. [B] to [B].

    Computed as −ln((1 − D) + 10⁻⁷ D), which differs from −ln(1 − D) in single precision.
    """
    return -(torch.sigmoid(-logits) + _FLOOR * torch.sigmoid(logits)).log()


def on_the_line(expert: Tensor, policy: Tensor, share: Tensor) -> Tensor:
    """Interpolates between rows of the two. expert, policy: [B, …]; share: weight of the expert in [0, 1], [B]."""
    share = share.reshape(-1, *[1] * (expert.dim() - 1))
    return policy + share * (expert - policy)


def gradient_penalty(gradients: Sequence[Tensor]) -> Tensor:
    """E[max(0, ‖∇‖ − 1)²] over all inputs of a row, Petzka et al. 2018 (arXiv:1709.08894).

    Only slopes above 1 are penalized. ML-Agents penalizes every slope other than 1 (Gulrajani et al. 2017,
    arXiv:1704.00028). This bends D, which is bounded by 0 and 1, where inputs do not distinguish expert and policy. It
    also fixes the initial, random direction of D: on the pyramids scene, the estimates then take several times as long
    to separate.

    gradients: of D by each input, [B, …]. Returns a scalar.
    """
    square = torch.stack([gradient.flatten(1).square().sum(dim=1) for gradient in gradients]).sum(dim=0)
    # The gradient of the root is infinite at 0, and would make this NaN.
    return ((square + _FLOOR).sqrt() - 1.0).clamp(min=0.0).square().mean()


def bottleneck_divergence(expert_mean: Tensor, policy_mean: Tensor, sigma: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) of the expert's codes plus that of the policy's, each a mean over its rows.

        ½ Σ (μ² + σ² − 1 − ln σ²)

    As ML-Agents measures what Peng et al. 2019 (arXiv:1810.00821) bound: the sum of both, not their mean.
    expert_mean, policy_mean: [B, Z]; sigma: [Z]. Returns a scalar.
    """
    variance = sigma.square()
    means = 0.5 * (expert_mean.square().sum(dim=1).mean() + policy_mean.square().sum(dim=1).mean())
    return means + (variance - 1.0 - variance.log()).sum()


def large_margin_loss(q: Tensor, choices: Tensor, branches: Sequence[int], margin: float) -> Tensor:
    """E[max_a (Q(o, a) + l(a_E, a)) − Q(o, a_E)], J_E of Hester et al. 2018 (arXiv:1704.03732), a scalar.

    l is ``margin`` for each branch in which a differs from the demonstrated choice a_E. The loss is 0 if a_E is best
    by at least this margin. q: [B, K]; choices: a_E, int64 [B, branches], counted from the start of all K.
    """
    wrong = torch.full_like(q, margin).scatter(1, choices, 0.0)
    best = sum(part.amax(dim=1) for part in torch.split(q + wrong, list(branches), dim=1))
    return (best - q.gather(1, choices).sum(dim=1)).mean()


def cloning_loss(squared_error: Tensor | None, log_choices: Tensor | None, choices: Tensor) -> Tensor:
    """Mean squared error of continuous actions plus mean cross-entropy of the branches, a scalar.

    squared_error: [B, C], None without continuous actions. log_choices: log-probabilities [B, K], None without
    branches. choices: the demonstrated choices, int64 [B, branches], counted from the start of all K.
    """
    loss = choices.new_zeros((), dtype=torch.float32)
    if squared_error is not None:
        loss = loss + squared_error.mean()
    if log_choices is not None:
        loss = loss - log_choices.gather(1, choices).mean()
    return loss
