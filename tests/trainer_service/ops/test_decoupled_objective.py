"""The decoupled objective on a bandit of two actions, whose numbers fit on paper."""

from __future__ import annotations

import pytest
import torch

from trainer_service.ops.losses import MAX_WEIGHT, clipped_surrogate_loss, importance_weights

BEHAVIOR = torch.tensor([0.5, 0.5]).log()
PROXIMAL = torch.tensor([0.75, 0.25]).log()
ADVANTAGE = torch.tensor([1.0, -1.0])
"""Of the two actions, each of which was taken once."""


def surrogate(logits: torch.Tensor, *, decoupled: bool) -> torch.Tensor:
    """The loss of actors with these logits, by the mathematics as they are written down."""
    log_prob = torch.log_softmax(logits, dim=-1)
    if not decoupled:
        return clipped_surrogate_loss(log_prob, BEHAVIOR, ADVANTAGE, clip_epsilon=0.2)
    weights = importance_weights(PROXIMAL - BEHAVIOR)
    return clipped_surrogate_loss(log_prob, PROXIMAL, weights * ADVANTAGE, clip_epsilon=0.2)


def test_weights_by_hand() -> None:
    ratios = torch.tensor([1.2, 0.2, 1.0, 3.0, 1e30])
    assert importance_weights(ratios.log()).tolist() == pytest.approx([1.2, 0.2, 1.0, MAX_WEIGHT, MAX_WEIGHT])
    assert importance_weights(torch.tensor([1e10, -1e10])).tolist() == [MAX_WEIGHT, 0.0]


def test_the_gradient_on_stale_actions_is_that_of_the_present_policy() -> None:
    # Weights 3/2 and 1/2: ∂L/∂z₀ = ½ [3/2 · 1 · (1 − ¾) + ½ · (−1) · (0 − ¾)] = 3/8.
    # Had the present policy acted: ¾ · 1 · (1 − ¾) + ¼ · (−1) · (0 − ¾) = 3/8.
    logits = PROXIMAL.clone().requires_grad_()
    surrogate(logits, decoupled=True).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([-3 / 8, 3 / 8])


def test_without_it_both_actions_count_as_learned_already() -> None:
    # Ratios 3/2 and 1/2 lie outside the clip on the sides where each advantage pulls.
    logits = PROXIMAL.clone().requires_grad_()
    surrogate(logits, decoupled=False).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [0.0, 0.0]


def test_weights_may_stand_inside_the_minimum_even_where_they_are_truncated() -> None:
    generator = torch.Generator().manual_seed(1)
    log_ratio, moved, advantage = 2.0 * torch.randn(3, 500, generator=generator)
    weights = importance_weights(log_ratio)
    assert 0.1 < float((weights == MAX_WEIGHT).float().mean()) < 0.9
    ratio = moved.exp()
    outside = weights * torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    inside = clipped_surrogate_loss(moved, torch.zeros(500), weights * advantage, clip_epsilon=0.2)
    assert float(inside) == pytest.approx(-float(outside.mean()), rel=1e-5)
