"""Action values: which action is best, what it is worth, and what a value should have been.

K choices over all branches, side by side. An action has a choice of every branch, and Q(o, a) = Σ_b Q_b(o, a_b), so
the best choice of a branch does not hang on the others'; with one branch that is plain Q-learning. Leading dimensions
are whatever they are: [B, K], or [B, agents, K]. A choice is counted within its branch, from 0. Where everything is
forbidden, choice 0 is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_FORBIDDEN = -1e10
"""Finite, so that a row without any allowed choice makes no NaN."""


def masked_argmax(q: Tensor, allowed: Tensor | None, branches: Sequence[int]) -> Tensor:
    """The best allowed choice of each branch.

    q: [..., K]; allowed: bool [..., K], or None where everything is. Returns int64 [..., branches].
    """
    if allowed is not None:
        q = torch.where(allowed, q, _FORBIDDEN)
    if len(branches) == 1:
        return q.argmax(dim=-1, keepdim=True)
    return torch.stack([part.argmax(dim=-1) for part in torch.split(q, list(branches), dim=-1)], dim=-1)


def chosen_value(q: Tensor, actions: Tensor, branches: Sequence[int]) -> Tensor:
    """Value of an action: the sum over branches. q: [..., K]; actions: int64 [..., branches]. Returns [...]."""
    if len(branches) == 1:
        return q.gather(-1, actions).squeeze(-1)
    starts = actions.new_tensor([sum(branches[:branch]) for branch in range(len(branches))])
    return q.gather(-1, actions + starts).sum(dim=-1)


def best_value(q: Tensor, allowed: Tensor | None, branches: Sequence[int]) -> Tensor:
    """Value of the best allowed action: max_a Q(o, a). Shapes as for ``masked_argmax``. Returns [...]."""
    return chosen_value(q, masked_argmax(q, allowed, branches), branches)


def advantage_targets(targets: Tensor, best: Tensor, chosen: Tensor, alpha: float) -> Tensor:
    """Targets of advantage learning, y − α (max_a Q(o, a) − Q(o, a_taken)), Bellemare et al. 2016 (arXiv:1512.04860).

    The best action's value stays what it is. Where values have settled, the others lie 1 / (1 − α) times as far below
    it as they are worth less, so that errors of the network turn the order over less easily. best and chosen are of
    the target network, in the state that the action was taken in. All [...].
    """
    return targets - alpha * (best - chosen)


def double_q_value(
    q_online: Tensor, q_target: Tensor, allowed: Tensor | None, branches: Sequence[int]
) -> Tensor:
    """Q_target(o, argmax_a Q_online(o, a)), van Hasselt et al. 2016 (arXiv:1509.06461).

    One estimate chooses and another judges, so that an error which makes an action look good is not believed twice.
    Shapes as for ``masked_argmax``. Returns [...].
    """
    return chosen_value(q_target, masked_argmax(q_online, allowed, branches), branches)


def td_targets(rewards: Tensor, discounts: Tensor | float, next_values: Tensor, terminated: Tensor) -> Tensor:
    """y = r + γ (1 − terminated) V(o'), all of one shape.

    With n steps, rewards are their discounted sum and discounts γⁿ. An episode that was only interrupted has not
    terminated: o' is what was seen last.
    """
    return rewards + discounts * torch.where(terminated, 0.0, next_values)


def random_choices(allowed: Tensor, branches: Sequence[int], generator: torch.Generator) -> Tensor:
    """One choice of each branch, uniformly among the allowed ones. allowed: bool [..., K]. Returns [..., branches]."""
    draws = torch.rand(allowed.shape, generator=generator, device=generator.device).to(allowed.device)
    return masked_argmax(draws, allowed, branches)


def exploring(
    actions: Tensor, allowed: Tensor, epsilon: float, generator: torch.Generator, branches: Sequence[int]
) -> Tensor:
    """ε-greedy: each agent for itself does something uniformly random with probability ε, else what is given.

    Draws as much from the generator whatever ε is. actions: int64 [..., branches]; allowed: bool [..., K].
    """
    coins = torch.rand(actions.shape[:-1], generator=generator, device=generator.device).to(actions.device)
    drawn = random_choices(allowed, branches, generator)
    return torch.where((coins < epsilon).unsqueeze(-1), drawn, actions)


def dueling(value: Tensor, advantages: Tensor, branches: Sequence[int]) -> Tensor:
    """Q_b = V/branches + A_b − mean A_b, Wang et al. 2016 (arXiv:1511.06581).

    Without the mean, V and A could trade any constant. V is shared out, for values of branches add up to the action's.
    value: [..., 1]; advantages: [..., K]. Returns [..., K].
    """
    share = value / len(branches)
    if len(branches) == 1:
        return share + advantages - advantages.mean(dim=-1, keepdim=True)
    parts = torch.split(advantages, list(branches), dim=-1)
    return torch.cat([share + part - part.mean(dim=-1, keepdim=True) for part in parts], dim=-1)


def td_loss(errors: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of w δ². errors: [B]; weights: [B], or None where all rows count alike. A scalar."""
    squares = errors.square()
    return (squares if weights is None else weights * squares).mean()
