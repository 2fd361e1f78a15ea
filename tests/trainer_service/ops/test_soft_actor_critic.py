from __future__ import annotations

import math

import pytest
import torch

from trainer_service.ops import distributions as dist
from trainer_service.ops import soft_actor_critic as soft
from trainer_service.ops.soft_actor_critic import Drawn

NOTHING = torch.zeros(1, 0)


def log(*probabilities: float) -> torch.Tensor:
    return torch.tensor([probabilities]).log()


def test_the_density_of_a_squashed_number_integrates_to_one() -> None:
    actions = torch.linspace(-1.0, 1.0, 200_003, dtype=torch.float64)[1:-1]
    unbounded = torch.atanh(actions)[:, None]
    for mean, log_sigma in ((0.0, -1.0), (0.7, -0.3), (-1.5, -2.0)):
        gaussian = dist.gaussian_log_prob(unbounded, torch.tensor([[mean]]), torch.tensor([log_sigma]))
        density = (gaussian - soft.tanh_correction(unbounded)).exp()
        assert float(torch.trapezoid(density, actions)) == pytest.approx(1.0, abs=1e-3)


def test_the_tanh_correction_is_its_derivative_and_stays_finite() -> None:
    unbounded = torch.tensor([[0.0, 0.5], [-2.0, 1.0]], dtype=torch.float64)
    expected = (1.0 - torch.tanh(unbounded) ** 2).log().sum(dim=-1)
    torch.testing.assert_close(soft.tanh_correction(unbounded), expected)
    far = torch.tensor([[60.0], [-60.0]], requires_grad=True)
    corrections = soft.tanh_correction(far)
    # ln(4 e^(−2·60)) = 2 ln 2 − 120
    torch.testing.assert_close(corrections.detach(), torch.full((2,), 2 * math.log(2) - 120.0))
    corrections.sum().backward()
    assert far.grad is not None
    assert far.grad.flatten().tolist() == [-2.0, 2.0]


def test_the_soft_value_of_numbers_by_hand() -> None:
    # min(3, 2) − ½ · (−4) = 4
    q = torch.tensor([3.0, 2.0]).view(2, 1, 1, 1)
    drawn = Drawn(torch.zeros(1, 1), torch.tensor([-4.0]), None)
    assert soft.soft_values(q, drawn, torch.tensor([0.5]), ()).tolist() == [[4.0]]


def test_the_soft_value_of_choices_by_hand() -> None:
    # Smallest values 1 and 2, probabilities ¼ and ¾: 7/4. Entropy ¼ ln 4 + ¾ ln 4/3, times α = 2.
    q = torch.tensor([[1.0, 5.0], [4.0, 2.0]]).view(2, 1, 1, 2)
    value = soft.soft_values(q, Drawn(NOTHING, None, log(0.25, 0.75)), torch.tensor([2.0]), (2,))
    entropy = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert value.item() == pytest.approx(1.75 + 2.0 * entropy)


def test_branches_are_averaged_each_with_its_own_temperature() -> None:
    q = torch.tensor([1.0, 3.0, 0.0, 0.0, 6.0]).view(1, 1, 1, 5)
    drawn = Drawn(NOTHING, None, torch.cat([log(0.5, 0.5), log(1 / 3, 1 / 3, 1 / 3)], dim=1))
    value = soft.soft_values(q, drawn, torch.tensor([1.0, 0.5]), (2, 3))
    # Branch values 2 and 2; entropies ln 2 and ln 3.
    assert value.item() == pytest.approx(2.0 + (1.0 * math.log(2) + 0.5 * math.log(3)) / 2)


def test_critics_that_agree_on_all_actions_have_that_value() -> None:
    """One has a value that is 8 larger in one branch, and 8 smaller in the other: the mean over branches is equal."""
    q = torch.tensor([[1.0, 3.0, 0.0, 6.0], [9.0, 11.0, -8.0, -2.0]]).view(2, 1, 1, 4)
    chances = torch.cat([log(0.5, 0.5), log(0.75, 0.25)], dim=1)
    assert soft.expected_value(q, chances, (2, 2)).item() == pytest.approx((2.0 + 1.5) / 2)
    # A critic that is 1 smaller in one branch is smaller by ½.
    q[1, ..., 2:] -= 1.0
    assert soft.expected_value(q, chances, (2, 2)).item() == pytest.approx((2.0 + 0.5) / 2)


def test_both_kinds_of_entropy_count_in_hybrid_actions() -> None:
    q = torch.tensor([1.0, 3.0]).view(1, 1, 1, 2)
    drawn = Drawn(torch.zeros(1, 1), torch.tensor([-4.0]), log(0.5, 0.5))
    value = soft.soft_values(q, drawn, torch.tensor([0.25, 0.5]), (2,))
    assert value.item() == pytest.approx(2.0 + 0.25 * math.log(2) + 0.5 * 4.0)


def test_the_soft_optimum_is_a_softmax_with_logsumexp_value() -> None:
    q = torch.tensor([1.0, -0.5, 0.3, 2.0], dtype=torch.float64)
    alpha = torch.tensor([0.7], dtype=torch.float64)
    logits = (q / alpha).clone().requires_grad_()
    drawn = Drawn(NOTHING.double(), None, torch.log_softmax(logits, dim=0)[None])
    value = soft.soft_values(q.view(1, 1, 1, 4), drawn, alpha, (4,)).sum()
    assert value.item() == pytest.approx((alpha * torch.logsumexp(q / alpha, dim=0)).item())
    value.backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), atol=1e-12, rtol=0)


def test_forbidden_choices_have_no_value_no_entropy_and_no_gradient() -> None:
    logits = torch.tensor([[0.0, 0.0, 9.0]], requires_grad=True)
    allowed = torch.tensor([[True, True, False]])
    drawn = Drawn(NOTHING, None, dist.masked_log_softmax(logits, allowed, (3,)))
    q = torch.tensor([1.0, 3.0, 1e6]).view(1, 1, 1, 3)
    value = soft.soft_values(q, drawn, torch.tensor([1.0]), (3,)).sum()
    assert value.item() == pytest.approx(2.0 + math.log(2))
    value.backward()
    assert logits.grad is not None
    assert logits.grad[0, 2].item() == 0.0
    assert torch.isfinite(logits.grad).all()


def test_targets_by_hand() -> None:
    rewards = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    continues = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    values = torch.tensor([[10.0, 4.0], [10.0, 4.0]])
    targets = soft.soft_targets(rewards, continues, values, torch.tensor([0.5, 0.25]))
    assert targets.tolist() == [[6.0, 1.0], [1.0, 3.0]]


def test_the_critics_losses_by_hand() -> None:
    errors = torch.tensor([[[2.0], [0.0]], [[1.0], [3.0]]])
    assert soft.critic_loss(errors, None).tolist() == [1.0, 2.5]
    assert soft.critic_loss(errors, torch.tensor([1.0, 0.5])).tolist() == [1.0, 1.375]


def test_target_entropies_count_what_is_allowed() -> None:
    allowed = torch.tensor([[True, True, True, False, True], [True, False, False, True, False]])
    targets = soft.target_entropies(3, allowed, (2, 3))
    torch.testing.assert_close(
        targets, torch.tensor([[0.2 * math.log(2), 0.2 * math.log(2), -3.0], [0.0, 0.0, -3.0]])
    )
    assert soft.target_entropies(2, torch.empty((4, 0), dtype=torch.bool), ()).tolist() == [[-2.0]] * 4


def test_too_little_entropy_lets_the_temperature_grow() -> None:
    entropy = torch.tensor([[0.1, -5.0], [0.3, -3.0]])
    target = torch.tensor([[0.5, -4.5], [0.5, -4.5]])
    gradient = soft.temperature_gradient(entropy, target)
    torch.testing.assert_close(gradient, torch.tensor([-0.3, 0.5]))
