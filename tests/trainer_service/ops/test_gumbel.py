from __future__ import annotations

import math

import pytest
import torch

from trainer_service.ops.gumbel import greedy_one_hot, gumbel_noise, gumbel_softmax

LN3 = math.log(3.0)


def test_branches_sum_to_one_and_forbidden_choices_get_nothing() -> None:
    logits = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(1))
    allowed = torch.ones(7, 3, 5, dtype=torch.bool)
    allowed[..., 1] = False
    drawn = gumbel_softmax(logits, torch.zeros_like(logits), allowed, (3, 2), temperature=0.7)
    torch.testing.assert_close(drawn[..., :3].sum(dim=-1), torch.ones(7, 3))
    torch.testing.assert_close(drawn[..., 3:].sum(dim=-1), torch.ones(7, 3))
    assert (drawn[..., 1] == 0.0).all()
    assert (drawn[..., [0, 2, 3, 4]] > 0.0).all()


def test_hard_choices_have_the_gradient_of_soft_ones() -> None:
    noise = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    values = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
    gradients = []
    for hard in (False, True):
        logits = torch.linspace(-1.0, 1.0, 30).view(6, 5).requires_grad_()
        drawn = gumbel_softmax(logits, noise, None, (3, 2), temperature=0.8, hard=hard)
        if hard:
            assert set(drawn.detach().unique().tolist()) == {0.0, 1.0}
            assert drawn.sum().item() == 12.0
            likeliest = (logits + noise)[:, :3].argmax(dim=1)
            assert torch.equal(drawn[:, :3].argmax(dim=1), likeliest)
        (drawn * values).sum().backward()
        assert logits.grad is not None
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0.01


def test_the_gradient_is_that_of_a_softmax_over_the_temperature() -> None:
    # dy₁/dl₁ = y₁ (1 − y₁)/τ = 0.9 · 0.1 / 0.5
    logits = torch.tensor([[0.0, LN3]], requires_grad=True)
    gumbel_softmax(logits, torch.zeros(1, 2), None, (2,), temperature=0.5)[0, 1].backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.18, 0.18]]))


def test_noise_makes_draws_of_the_softmax() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log().expand(40_000, 3)
    noise = gumbel_noise(torch.empty_like(logits).exponential_(generator=torch.Generator().manual_seed(4)))
    # Euler's constant, and π²/6.
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.02)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.05)
    drawn = gumbel_softmax(logits, noise, None, (3,), temperature=1.0, hard=True)
    assert drawn.mean(dim=0).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.015)


def test_the_likeliest_choice_is_allowed_or_else_the_first() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 0.0, 5.0]] * 2)
    allowed = torch.tensor([[True, True, False, True, False], [False] * 5])
    expected = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0, 0.0]])
    assert torch.equal(greedy_one_hot(logits, allowed, (3, 2)), expected)
    drawn = gumbel_softmax(logits, torch.zeros(2, 5), allowed, (3, 2), temperature=1.0)
    assert drawn.isfinite().all()
