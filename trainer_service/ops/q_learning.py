"""Action values: the best action, its value, and the targets of values.

K choices over all branches, concatenated. An action has a choice of every branch, and Q(o, a) = Σ_b Q_b(o, a_b). So
the best choice of a branch is independent of the other branches. One branch is plain Q-learning. Leading dimensions
are arbitrary: [B, K] or [B, agents, K]. A choice is counted within its branch, from 0. If all choices of a branch are
forbidden, its choice is 0.
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

    The best action's value is unchanged. At convergence, the action gap of other actions is 1 / (1 − α) times as
    large. So approximation errors change the order of actions less often. best and chosen are values of the target
    network in the state of the action. All [...].
    """
    return targets - alpha * (best - chosen)


def double_q_value(
    q_online: Tensor, q_target: Tensor, allowed: Tensor | None, branches: Sequence[int]
) -> Tensor:
    """Q_target(o, argmax_a Q_online(o, a)), van Hasselt et al. 2016 (arXiv:1509.06461).

    One network chooses the action and the other evaluates it, which reduces overestimation. Shapes as for
    ``masked_argmax``. Returns [...].
    """
    return chosen_value(q_target, masked_argmax(q_online, allowed, branches), branches)


def td_targets(rewards: Tensor, discounts: Tensor | float, next_values: Tensor, terminated: Tensor) -> Tensor:
    """y = r + γ (1 − terminated) V(o'), all of one shape.

    With n steps, rewards are discounted sums, and discounts are γⁿ. A truncated episode is not terminated: o' is its
    final observation.
    """
    return rewards + discounts * torch.where(terminated, 0.0, next_values)


def random_choices(allowed: Tensor, branches: Sequence[int], generator: torch.Generator) -> Tensor:
    """Random choices, uniform among the allowed ones. allowed: bool [..., K]. Returns [..., branches]."""
    draws = torch.rand(allowed.shape, generator=generator, device=generator.device).to(allowed.device)
    return masked_argmax(draws, allowed, branches)


def exploring(
    actions: Tensor, allowed: Tensor, epsilon: float, generator: torch.Generator, branches: Sequence[int]
) -> Tensor:
    """ε-greedy: each agent independently replaces its action by a uniformly random one with probability ε.

    The number of random draws does not depend on ε. actions: int64 [..., branches]; allowed: bool [..., K].
    """
    coins = torch.rand(actions.shape[:-1], generator=generator, device=generator.device).to(actions.device)
    drawn = random_choices(allowed, branches, generator)
    return torch.where((coins < epsilon).unsqueeze(-1), drawn, actions)


def dueling(value: Tensor, advantages: Tensor, branches: Sequence[int]) -> Tensor:
    """Q_b = V/branches + A_b − mean A_b, Wang et al. 2016 (arXiv:1511.06581).

    Without the mean, V and A are defined only up to a constant. V is divided by the number of branches, since the
    branches' values add up to the action's. value: [..., 1]; advantages: [..., K]. Returns [..., K].
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
