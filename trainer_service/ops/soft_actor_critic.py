"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), for numbers, choices (Christodoulou 2019,
arXiv:1910.07207) and both at once.

B rows, S reward signals, N critics, C continuous dimensions, K choices over all branches. A critic puts out one
number per choice, its continuous action being an input; of an action with several branches the value is the
mean over them. Without choices there is one output. What is drawn is a; what is chosen is summed over, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_LOG_2 = math.log(2.0)


class Drawn(NamedTuple):
    """Actions that a policy would take now, differentiable."""

    continuous: Tensor
    """tanh(u), u drawn. [B, C]"""

    log_prob: Tensor | None
    """ln π(a) of the continuous part; None where there is none. [B]"""

    log_choices: Tensor | None
    """ln π of every choice; None where there are none. [B, K]"""


def tanh_correction(unbounded: Tensor) -> Tensor:
    """Σ ln(1 − tanh² u): what a density loses when its u becomes tanh u. [B, C] to [B].

    As 2 (ln 2 − u − softplus(−2u)), which neither overflows nor becomes ln 0 for large u.
    """
    return 2.0 * (_LOG_2 - unbounded - functional.softplus(-2.0 * unbounded)).sum(dim=-1)


def expected_value(q: Tensor, log_choices: Tensor | None, branches: Sequence[int]) -> Tensor:
    """The smallest of the critics' values, choice by choice, under the policy's choices.

    Σ_a π(a) min_n Q_n(s, a), the mean over branches. q: [N, B, S, K or 1]. Returns [B, S].
    """
    least = q.amin(dim=0)
    if log_choices is None:
        return least.squeeze(-1)
    return torch.matmul(least, log_choices.exp().unsqueeze(-1)).squeeze(-1) / len(branches)


def entropy_bonus(drawn: Drawn, alpha: Tensor, branches: Sequence[int]) -> Tensor:
    """−α ln π(a), plus the mean over branches of −α_b Σ π_b ln π_b. Shape [B].

    alpha: one per branch, then the one of all continuous dimensions, if there are any.
    """
    bonus = alpha.new_zeros(len(drawn.continuous))
    if drawn.log_choices is not None:
        bonus = bonus + branch_entropies(drawn.log_choices, branches) @ alpha[: len(branches)] / len(branches)
    if drawn.log_prob is not None:
        bonus = bonus - alpha[-1] * drawn.log_prob
    return bonus


def branch_entropies(log_choices: Tensor, branches: Sequence[int]) -> Tensor:
    """−Σ π ln π of each branch, in nats. [B, K] to [B, branches]."""
    surprise = -(log_choices.exp() * log_choices)
    if len(branches) == 1:
        return surprise.sum(dim=-1, keepdim=True)
    return torch.stack([part.sum(dim=-1) for part in torch.split(surprise, list(branches), dim=-1)], dim=-1)


def soft_values(q: Tensor, drawn: Drawn, alpha: Tensor, branches: Sequence[int]) -> Tensor:
    """V(s) = E[min_n Q_n(s, a)] + entropy bonus, of which each signal carries an equal share. [B, S].

    Summed over signals it is the soft value of the summed rewards, with the bonus counted once.
    """
    values = expected_value(q, drawn.log_choices, branches)
    return values + (entropy_bonus(drawn, alpha, branches) / values.shape[1]).unsqueeze(-1)


def soft_targets(rewards: Tensor, continues: Tensor, next_values: Tensor, discounts: Tensor) -> Tensor:
    """y = r + γ V(s'), and y = r where nothing continues. All [B, S] but the discounts, which are [S]."""
    return rewards + discounts * continues * next_values


def taken_values(q: Tensor, choices: Tensor) -> Tensor:
    """Each critic's value of the action that was taken. q: [N, B, S, K or 1]. Returns [N, B, S].

    choices: int64 [B, branches], counted from the start of all K (see ``choice_offsets``).
    """
    if not choices.shape[1]:
        return q.squeeze(-1)
    index = choices[None, :, None, :].expand(q.shape[0], -1, q.shape[2], -1)
    return q.gather(-1, index).mean(dim=-1)


def critic_loss(errors: Tensor, weights: Tensor | None) -> Tensor:
    """Half the mean squared error, the mean over rows and signals, of each critic. Shape [N].

    errors: Q − y, [N, B, S]. weights: [B], or None for equal ones.
    """
    squared = errors * errors
    if weights is not None:
        squared = squared * weights[:, None]
    return 0.5 * squared.mean(dim=(1, 2))


def target_entropies(
    continuous_size: int, allowed: Tensor, branches: Sequence[int], *, share: float = 0.2
) -> Tensor:
    """How much chance each part of the action shall keep: −C for all numbers, share · ln(allowed choices) for each
    branch. Branches first. allowed: bool [B, K]. Returns [B, branches (+ 1)].
    """
    parts = torch.split(allowed, list(branches), dim=-1) if branches else ()
    # Where nothing is allowed the distribution is over everything, but no agent could act on it.
    targets = [share * part.sum(dim=-1).clamp(min=1).log() for part in parts]
    if continuous_size:
        targets.append(torch.full((len(allowed),), -float(continuous_size), device=allowed.device))
    return torch.stack(targets, dim=-1)


def entropies(drawn: Drawn, branches: Sequence[int]) -> Tensor:
    """The entropy of each branch, then −ln π(a) of the numbers, an estimate of theirs. [B, branches (+ 1)]."""
    parts = [] if drawn.log_choices is None else [branch_entropies(drawn.log_choices, branches)]
    if drawn.log_prob is not None:
        parts.append(-drawn.log_prob.unsqueeze(-1))
    return torch.cat(parts, dim=-1)


def temperature_gradient(entropy: Tensor, target: Tensor) -> Tensor:
    """Gradient of J = ln α · (H − H_target), by ln α: too little entropy lets α grow. [B, parts] to [parts]."""
    return (entropy - target).mean(dim=0)
