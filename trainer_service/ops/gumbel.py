"""Differentiable discrete choices: the Gumbel-softmax. K choices over all branches, any leading dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer_service.ops.distributions import choice_offsets, greedy_categorical, one_hot

_FORBIDDEN = -1e10
"""Finite, so that a row without any allowed choice has no NaN."""


def gumbel_noise(exponential: Tensor) -> Tensor:
    """Draws of −ln(−ln u), u uniform, from draws of an exponential distribution with mean 1. Shape kept."""
    return -exponential.log()


def gumbel_softmax(
    logits: Tensor,
    noise: Tensor,
    allowed: Tensor | None,
    branches: Sequence[int],
    *,
    temperature: float,
    hard: bool = False,
) -> Tensor:
    """Relaxed one-hot choices y = softmax((l + g)/τ) of each branch, Jang et al. 2017 (arXiv:1611.01144).

    Their largest entry is distributed as a draw from softmax(l). Forbidden choices get exactly 0.

    Args:
        logits: l, of each branch side by side. [..., K]
        noise: g, from ``gumbel_noise``. [..., K]
        allowed: bool [..., K], or None where everything is allowed.
        branches: choices of each.
        temperature: τ; the smaller, the nearer to a whole choice.
        hard: whole choices, with the gradient of the relaxed ones (straight through).

    Returns:
        [..., K]; each branch adds up to 1.
    """
    perturbed = _masked(logits + noise, allowed)
    parts = [
        torch.softmax(part / temperature, dim=-1) for part in torch.split(perturbed, list(branches), dim=-1)
    ]
    relaxed = torch.cat(parts, dim=-1)
    if not hard:
        return relaxed
    chosen = one_hot_choices(greedy_categorical(perturbed.detach(), branches), branches)
    # In this order the value is exactly 0 or 1.
    return chosen + (relaxed - relaxed.detach())


def greedy_one_hot(logits: Tensor, allowed: Tensor | None, branches: Sequence[int]) -> Tensor:
    """The likeliest allowed choice of each branch, the first where nothing is allowed. Shape [..., K]."""
    return one_hot_choices(greedy_categorical(_masked(logits, allowed), branches), branches)


def one_hot_choices(choices: Tensor, branches: Sequence[int]) -> Tensor:
    """Choices counted within each branch, int64 [..., branches], as floats side by side [..., K]."""
    offsets = torch.tensor(choice_offsets(branches), dtype=torch.int64, device=choices.device)
    return one_hot(choices + offsets, sum(branches))


def _masked(logits: Tensor, allowed: Tensor | None) -> Tensor:
    return logits if allowed is None else torch.where(allowed, logits, _FORBIDDEN)
