"""Densities, entropies and draws of actions. B rows, C continuous dimensions, K choices over all branches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_FORBIDDEN = -1e10
"""Finite, so that a row without any allowed choice still has a distribution and no NaN."""


def standard_normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Independent draws with mean 0 and standard deviation 1. Shape, device and layout of ``like``."""
    return torch.empty_like(like, device=generator.device).normal_(generator=generator).to(like.device)


def standard_exponential(like: Tensor, generator: torch.Generator) -> Tensor:
    """Independent draws of an exponential distribution with mean 1. Shape, device and layout of ``like``."""
    return torch.empty_like(like, device=generator.device).exponential_(generator=generator).to(like.device)


def uniform(like: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Independent draws, uniform in [low, high). Shape, device and layout of ``like``."""
    return (
        torch.empty_like(like, device=generator.device)
        .uniform_(low, high, generator=generator)
        .to(like.device)
    )


def gaussian_log_prob(
    value: Tensor, mean: Tensor, log_sigma: Tensor, counted: Tensor | None = None
) -> Tensor:
    """Joint log-density of independent Gaussians: the sum over dimensions.

    value, mean: [B, C]; log_sigma: [C] or [B, C]; counted: 1 for dimensions that count in a row, 0 for others, [B, C],
    or None where all do. Returns [B].
    """
    return standard_gaussian_log_prob((value - mean) * torch.exp(-log_sigma), log_sigma, counted)


def standard_gaussian_log_prob(z: Tensor, log_sigma: Tensor, counted: Tensor | None = None) -> Tensor:
    """Joint log-density from z = (a − μ)/σ, for callers that also use z. z: [B, C]. Returns [B]."""
    volume = log_sigma + _HALF_LOG_TAU
    if counted is not None:
        z, volume = z * counted, volume * counted
    return (z * z).sum(dim=-1).mul(-0.5) - volume.sum(dim=-1)


def gaussian_log_volume(log_sigma: Tensor) -> Tensor:
    """Σ (ln σ + ½ ln 2π), the constant of ``standard_gaussian_log_prob`` if all dimensions count. Shape []."""
    return (log_sigma + _HALF_LOG_TAU).sum(dim=-1)


def gaussian_entropy(log_sigma: Tensor, counted: Tensor | None = None) -> Tensor:
    """*Mean* over dimensions of ½ ln(2πe σ²), shape [] or [B]; 0 for rows without a counted dimension.

    The mean, not the sum, since ML-Agents multiplies the mean by ``beta``. So ``beta`` has the same meaning.
    """
    entropies = log_sigma + _HALF_LOG_TAU + 0.5
    if counted is None:
        return entropies.mean(dim=-1)
    return (entropies * counted).sum(dim=-1) / counted.sum(dim=-1).clamp(min=1.0)


def gaussian_kl(
    old_mean: Tensor, old_log_sigma: Tensor, mean: Tensor, log_sigma: Tensor, counted: Tensor | None = None
) -> Tensor:
    """KL divergence of independent Gaussians from older ones, KL(old ‖ new): the sum over dimensions.

    Σ ½ (σ_o²/σ² − 1 − ln(σ_o²/σ²) + (μ_o − μ)²/σ²). old_mean, mean: [B, C]; old_log_sigma, log_sigma: [C] or [B, C];
    counted: as for ``gaussian_log_prob``. Returns [B].
    """
    spread = 2.0 * (old_log_sigma - log_sigma)
    shift = (old_mean - mean) * torch.exp(-log_sigma)
    divergences = 0.5 * (torch.expm1(spread) - spread + shift * shift)
    return (divergences if counted is None else divergences * counted).sum(dim=-1)


def masked_log_softmax(logits: Tensor, allowed: Tensor | None, branches: Sequence[int]) -> Tensor:
    """Log-probabilities of each branch's choices, concatenated. Forbidden choices get probability 0.

    logits: [B, K]; allowed: bool [B, K], or None where everything is allowed. Returns [B, K].
    """
    if allowed is not None:
        logits = torch.where(allowed, logits, _FORBIDDEN)
    if len(branches) == 1:
        return torch.log_softmax(logits, dim=-1)
    parts = torch.split(logits, list(branches), dim=-1)
    return torch.cat([torch.log_softmax(part, dim=-1) for part in parts], dim=-1)


def choice_offsets(branches: Sequence[int]) -> list[int]:
    """Returns the first column of each branch among all K. A choice plus its offset is a column."""
    return [sum(branches[:branch]) for branch in range(len(branches))]


def categorical_log_prob(log_probs: Tensor, indices: Tensor) -> Tensor:
    """Joint log-probability of one choice per branch: the sum over branches.

    log_probs: [B, K]; indices: int64 [B, branches], offsets included. Returns [B].
    """
    return log_probs.gather(1, indices).sum(dim=-1)


def categorical_entropy(log_probs: Tensor) -> Tensor:
    """Sum over branches of −Σ p ln p, in nats. log_probs: [B, K]. Returns [B]."""
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def categorical_kl(old_log_probs: Tensor, log_probs: Tensor) -> Tensor:
    """KL divergence from older probabilities, KL(old ‖ new): the sum over branches of Σ p_o (ln p_o − ln p).

    old_log_probs, log_probs: [B, K]. Returns [B].
    """
    return (old_log_probs.exp() * (old_log_probs - log_probs)).sum(dim=-1)


def sample_categorical(log_probs: Tensor, branches: Sequence[int], generator: torch.Generator) -> Tensor:
    """One choice per branch, by the Gumbel-max trick. log_probs: [B, K]. Returns int64 [B, branches]."""
    noise = standard_exponential(log_probs, generator)
    return greedy_categorical(log_probs - noise.log(), branches)


def greedy_categorical(log_probs: Tensor, branches: Sequence[int]) -> Tensor:
    """The likeliest choice of each branch. log_probs: [B, K]. Returns int64 [B, branches]."""
    if len(branches) == 1:
        return log_probs.argmax(dim=-1, keepdim=True)
    return torch.stack(
        [part.argmax(dim=-1) for part in torch.split(log_probs, list(branches), dim=-1)], dim=-1
    )


def one_hot(choices: Tensor, size: int) -> Tensor:
    """One-hot vectors of choices, as floats. choices: int64 [..., branches], offsets included.

    Returns [..., size].
    """
    return torch.zeros((*choices.shape[:-1], size), device=choices.device).scatter_(-1, choices, 1.0)
