"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905).

For continuous actions, discrete actions (Christodoulou 2019, arXiv:1910.07207) and hybrid ones. B rows, S reward
signals, N critics, C continuous dimensions, K choices over all branches. A critic has one output per choice, and takes
the continuous action as an input. The value of an action with several branches is the mean over them. Without choices
there is one output. Expectations over continuous actions are sampled; sums over choices are exact.
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
    """Differentiable actions of the present policy."""

    continuous: Tensor
    """tanh(u) of a sampled u. [B, C]"""

    log_prob: Tensor | None
    """ln π(a) of the continuous part; None without continuous actions. [B]"""

    log_choices: Tensor | None
    """ln π of every choice; None without branches. [B, K]"""


def tanh_correction(unbounded: Tensor) -> Tensor:
    """Σ ln(1 − tanh² u), the log-determinant of squashing u to tanh u. [B, C] to [B].

    Computed as 2 (ln 2 − u − softplus(−2u)), which is finite for large u.
    """
    return 2.0 * (_LOG_2 - unbounded - functional.softplus(-2.0 * unbounded)).sum(dim=-1)


def expected_value(q: Tensor, log_choices: Tensor | None, branches: Sequence[int]) -> Tensor:
    """The expected value of the policy's choices by the smaller critic. q: [N, B, S, K or 1]. Returns [B, S].

    Σ_a π(a) min_n Q_n(s, a), as for continuous actions; with several branches min_n of the mean over branches of
    Σ_a π(a) Q_n(s, a). Only that mean is learned: a critic may be too large in one branch and too small in another,
    so the minimum choice by choice would be too small everywhere.
    """
    if log_choices is None:
        return q.amin(dim=0).squeeze(-1)
    chances = log_choices.exp().unsqueeze(-1)
    if len(branches) == 1:
        return torch.matmul(q.amin(dim=0), chances).squeeze(-1)
    return torch.matmul(q, chances).squeeze(-1).amin(dim=0) / len(branches)


def entropy_bonus(drawn: Drawn, alpha: Tensor, branches: Sequence[int]) -> Tensor:
    """−α ln π(a), plus the mean over branches of −α_b Σ π_b ln π_b. Shape [B].

    alpha: one for each branch, then one for all continuous dimensions, if any.
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
    """V(s) = E[min_n Q_n(s, a)] + entropy bonus, divided equally among the signals. [B, S].

    The sum over signals is the soft value of the summed rewards, with the bonus counted once.
    """
    values = expected_value(q, drawn.log_choices, branches)
    return values + (entropy_bonus(drawn, alpha, branches) / values.shape[1]).unsqueeze(-1)


def soft_targets(rewards: Tensor, continues: Tensor, next_values: Tensor, discounts: Tensor) -> Tensor:
    """y = r + γ V(s'), and y = r if the episode does not continue. All [B, S] except the discounts, which are [S]."""
    return rewards + discounts * continues * next_values


def taken_values(q: Tensor, choices: Tensor) -> Tensor:
    """Each critic's value of the taken action. q: [N, B, S, K or 1]. Returns [N, B, S].

    choices: int64 [B, branches], counted from the start of all K (see ``choice_offsets``).
    """
    if not choices.shape[1]:
        return q.squeeze(-1)
    index = choices[None, :, None, :].expand(q.shape[0], -1, q.shape[2], -1)
    return q.gather(-1, index).mean(dim=-1)


def critic_loss(errors: Tensor, weights: Tensor | None) -> Tensor:
    """Half the mean squared error of each critic, over rows and signals. Shape [N].

    errors: Q − y, [N, B, S]. weights: [B], or None for equal ones.
    """
    squared = errors * errors
    if weights is not None:
        squared = squared * weights[:, None]
    return 0.5 * squared.mean(dim=(1, 2))


def target_entropies(continuous_size: int, allowed: Tensor, branches: Sequence[int]) -> Tensor:
    """Target entropies: −C for all continuous dimensions, 0.2 · ln(allowed choices) for each branch.

    Branches come first. allowed: bool [B, K]. Returns [B, branches (+ 1)].
    """
    parts = torch.split(allowed, list(branches), dim=-1) if branches else ()
    # If no choice is allowed, the distribution covers all choices, but no agent can act on it.
    targets = [0.2 * part.sum(dim=-1).clamp(min=1).log() for part in parts]
    if continuous_size:
        targets.append(torch.full((len(allowed),), -float(continuous_size), device=allowed.device))
    return torch.stack(targets, dim=-1)


def entropies(drawn: Drawn, branches: Sequence[int]) -> Tensor:
    """The entropy of each branch, then −ln π(a) of the continuous action, an estimate of its. [B, branches (+ 1)]."""
    parts = [] if drawn.log_choices is None else [branch_entropies(drawn.log_choices, branches)]
    if drawn.log_prob is not None:
        parts.append(-drawn.log_prob.unsqueeze(-1))
    return torch.cat(parts, dim=-1)


def temperature_gradient(entropy: Tensor, target: Tensor) -> Tensor:
    """Gradient of J = ln α · (H − H_target) by ln α: α grows if the entropy is too small. [B, parts] to [parts]."""
    return (entropy - target).mean(dim=0)
