"""Losses as their papers state them, and PPO's gradient in closed form. B rows."""

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
    """What one minibatch is trained on."""

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


class PPOGradients(NamedTuple):
    """Gradients of PPO's loss with respect to what the network puts out, and the loss in its parts."""

    mean: Tensor
    log_sigma: Tensor
    logits: Tensor
    values: Tensor
    losses: Tensor
    """Policy loss, value loss, entropy, fraction of clipped ratios, approximate KL. Shape [5]."""


def ppo_gradients(
    mean: Tensor,
    log_sigma: Tensor,
    logits: Tensor,
    values: Tensor,
    targets: PPOBatch,
    *,
    branches: Sequence[int],
    clip_epsilon: float,
    value_clip_range: Tensor,
    value_coefficient: float,
    entropy_coefficient: float,
) -> PPOGradients:
    """Gradient of L = L^CLIP-loss + c_v L_V − β H by the network's outputs, without autograd.

    On minibatches of 64 rows, autograd through densities, ratios and clips costs more than the network itself;
    this form needs a third of the operations. With ρ the probability ratio, z = (a − μ)/σ and p the choices'
    probabilities:

        ∂L/∂log π = −ρ A / B   where the unclipped term is the smaller one, else 0
        ∂log π/∂μ = z/σ,   ∂log π/∂log σ = z² − 1,   ∂log π/∂logit = 1[chosen] − p
        ∂H/∂log σ = 1/C,   ∂H/∂logit = −p (log p + H_branch)
        ∂L_V/∂V = 2/(B·signals) · (V − R, or V_clip − R inside the range, or 0 outside: whichever term is larger)

    mean: [B, C]; log_sigma: [C]; logits: [B, K] before masking; values: [B, signals]. The result is to be
    handed to ``torch.autograd.backward``. It equals autograd of the plain losses (a test holds them equal).
    """
    rows = len(values)
    log_prob = torch.zeros_like(targets.advantage)
    entropy = values.new_zeros(())
    z = inverse_sigma = log_choices = choices = None
    if mean.shape[1]:
        inverse_sigma = torch.exp(-log_sigma)
        z = (targets.continuous_actions - mean) * inverse_sigma
        log_prob = dist.standard_gaussian_log_prob(z, log_sigma)
        entropy = dist.gaussian_entropy(log_sigma)
    if logits.shape[1]:
        log_choices = dist.masked_log_softmax(logits, targets.allowed_actions, branches)
        choices = log_choices.exp()
        log_prob = log_prob + log_choices.gather(1, targets.discrete_actions).sum(dim=-1)

    log_ratio = log_prob - targets.old_log_prob
    ratio = log_ratio.exp()
    unclipped = ratio * targets.advantage
    clipped_ratio = ratio.clamp(1.0 - clip_epsilon, 1.0 + clip_epsilon)
    clipped = clipped_ratio * targets.advantage
    surrogate = torch.minimum(unclipped, clipped)
    by_log_prob = torch.where(unclipped <= clipped, unclipped, 0.0).mul_(-1.0 / rows).unsqueeze_(1)

    mean_gradient, sigma_gradient, logit_gradient = mean, log_sigma, logits
    if z is not None and inverse_sigma is not None:
        mean_gradient = by_log_prob * (z * inverse_sigma)
        sigma_gradient = (by_log_prob * (z * z - 1.0)).sum(dim=0) - entropy_coefficient / mean.shape[1]
    if log_choices is not None and choices is not None:
        surprise = choices * log_choices
        if len(branches) == 1:
            branch_entropy = -surprise.sum(dim=-1, keepdim=True)
            spread = branch_entropy
        else:
            parts = [
                -part.sum(dim=-1, keepdim=True) for part in torch.split(surprise, list(branches), dim=-1)
            ]
            branch_entropy = torch.cat(parts, dim=-1)
            spread = torch.cat(
                [part.expand(-1, size) for part, size in zip(parts, branches, strict=True)], dim=-1
            )
        entropy = entropy + branch_entropy.sum() / rows
        logit_gradient = (entropy_coefficient / rows) * (surprise + choices * spread) - by_log_prob * choices
        logit_gradient.scatter_add_(
            1, targets.discrete_actions, by_log_prob.expand(-1, targets.discrete_actions.shape[1])
        )

    error = values - targets.return_
    moved = values - targets.old_value
    kept = torch.clamp(moved, -value_clip_range, value_clip_range)
    clipped_error = targets.old_value + kept - targets.return_
    squared, clipped_squared = error * error, clipped_error * clipped_error
    # Outside the range the larger term is flat in V; inside it both terms are the same one.
    flat = (clipped_squared > squared) & (kept != moved)
    value_gradient = torch.where(flat, 0.0, error).mul_(2.0 * value_coefficient / values.numel())

    losses = torch.stack(
        [
            -surrogate.mean(),
            torch.maximum(squared, clipped_squared).mean(),
            entropy,
            (ratio != clipped_ratio).float().mean(),
            (ratio - 1.0 - log_ratio).mean(),
        ]
    )
    return PPOGradients(mean_gradient, sigma_gradient, logit_gradient, value_gradient, losses)
