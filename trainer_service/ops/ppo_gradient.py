"""The gradient of PPO's loss in closed form: the fast path, which equals autograd of ``ops.losses.ppo_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainer_service.ops import distributions as dist
from trainer_service.ops.losses import PPOBatch


class PPOGradient(NamedTuple):
    """Gradients of PPO's loss with respect to what the network puts out, and the loss in its parts."""

    mean: Tensor
    log_sigma: Tensor
    logits: Tensor
    values: Tensor
    losses: Tensor
    """Policy loss, value loss, entropy, fraction of clipped ratios, approximate KL. Shape [5]."""


def ppo_gradient(
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
) -> PPOGradient:
    """Gradient of ``ppo_loss`` by the network's outputs, without autograd: −L^CLIP + c_v L_V − β H.

    On minibatches of 64 rows, autograd through densities, ratios and clips costs more than the network itself;
    this form needs a third of the operations. With ρ the probability ratio, z = (a − μ)/σ and p the choices'
    probabilities:

        ∂L/∂log π = −ρ A / B   where the unclipped term is the smaller one, else 0
        ∂log π/∂μ = z/σ,   ∂log π/∂log σ = z² − 1,   ∂log π/∂logit = 1[chosen] − p
        ∂H/∂log σ = 1/C,   ∂H/∂logit = −p (log p + H_branch)
        ∂L_V/∂V = 2/(B·signals) · (V − R, or V_clip − R inside the range, or 0 outside: whichever term is larger)

    mean: [B, C]; log_sigma: [C]; logits: [B, K] before masking; values: [B, signals]. The result is to be
    handed to ``torch.autograd.backward``. It equals autograd of ``ppo_loss`` (a test holds them equal).
    """
    rows = len(values)
    log_prob = torch.zeros_like(batch.advantage)
    entropy = values.new_zeros(())
    z = inverse_sigma = log_choices = choices = None
    if mean.shape[1]:
        inverse_sigma = torch.exp(-log_sigma)
        z = (batch.continuous_actions - mean) * inverse_sigma
        log_prob = dist.standard_gaussian_log_prob(z, log_sigma)
        entropy = dist.gaussian_entropy(log_sigma)
    if logits.shape[1]:
        log_choices = dist.masked_log_softmax(logits, batch.allowed_actions, branches)
        choices = log_choices.exp()
        log_prob = log_prob + log_choices.gather(1, batch.discrete_actions).sum(dim=-1)

    log_ratio = log_prob - batch.old_log_prob
    ratio = log_ratio.exp()
    unclipped = ratio * batch.advantage
    clipped_ratio = ratio.clamp(1.0 - clip_epsilon, 1.0 + clip_epsilon)
    clipped = clipped_ratio * batch.advantage
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
            1, batch.discrete_actions, by_log_prob.expand(-1, batch.discrete_actions.shape[1])
        )

    error = values - batch.return_
    moved = values - batch.old_value
    kept = torch.clamp(moved, -value_clip_range, value_clip_range)
    clipped_error = batch.old_value + kept - batch.return_
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
    return PPOGradient(mean_gradient, sigma_gradient, logit_gradient, value_gradient, losses)
