from __future__ import annotations

import math

import pytest
import torch

from trainer_service.ops.imitation import (
    bottleneck_divergence,
    cloning_loss,
    discriminator_loss,
    gradient_penalty,
    imitation_reward,
    large_margin_loss,
    on_the_line,
)


def logit(probability: float) -> float:
    return math.log(probability / (1.0 - probability))


def test_the_discriminators_loss_by_hand() -> None:
    # D = ½ and ¾ of an expert's steps, ¼ of the policy's: −(ln ½ + ln ¾)/2 − ln ¾.
    expert, policy = torch.tensor([0.0, logit(0.75)]), torch.tensor([logit(0.25)])
    expected = -(math.log(0.5) + math.log(0.75)) / 2.0 - math.log(0.75)
    assert discriminator_loss(expert, policy).item() == pytest.approx(expected)


def test_rewards_by_hand() -> None:
    rewards = imitation_reward(torch.tensor([logit(0.25), 0.0, logit(0.9)])).tolist()
    assert rewards == pytest.approx([-math.log(0.75), math.log(2.0), -math.log(0.1)], abs=1e-5)


def test_points_between_use_one_share_per_row() -> None:
    expert, policy = torch.full((2, 3, 2), 4.0), torch.zeros((2, 3, 2))
    between = on_the_line(expert, policy, torch.tensor([0.25, 1.0]))
    assert between.shape == (2, 3, 2)
    assert (between[0] == 1.0).all()
    assert (between[1] == 4.0).all()


def test_the_penalty_counts_all_inputs_of_a_row_together() -> None:
    # Lengths √(3² + 4²) = 5 and √(0.6² + 1.6²) = √2.92: the mean of (5 − 1)² and (√2.92 − 1)².
    first, second = torch.tensor([[3.0, 0.0], [0.6, 0.0]]), torch.tensor([[[4.0]], [[1.6]]])
    expected = (16.0 + (math.sqrt(2.92) - 1.0) ** 2) / 2.0
    assert gradient_penalty([first, second]).item() == pytest.approx(expected)


def test_only_what_is_too_steep_is_punished() -> None:
    assert gradient_penalty([torch.tensor([[0.3, 0.4], [0.0, 0.9]])]).item() == 0.0
    assert gradient_penalty([torch.tensor([[0.3, 0.4], [0.0, 3.0]])]).item() == pytest.approx(2.0)


def test_the_penalty_of_no_gradient_at_all_has_a_gradient() -> None:
    nothing = torch.zeros((2, 3), requires_grad=True)
    penalty = gradient_penalty([nothing])
    penalty.backward()
    assert penalty.item() == 0.0
    assert nothing.grad is not None
    assert nothing.grad.tolist() == [[0.0] * 3] * 2


def test_the_divergence_by_hand_and_as_torch_knows_it() -> None:
    # ½ (μ² + σ² − 1 − ln σ²): of the expert ½ (1 + 4 − 1 − ln 4), of the policy ½ (9 + 4 − 1 − ln 4).
    expert, policy, sigma = torch.tensor([[1.0]]), torch.tensor([[3.0], [-3.0]]), torch.tensor([2.0])
    divergence = bottleneck_divergence(expert, policy, sigma).item()
    assert divergence == pytest.approx((4.0 - math.log(4.0)) / 2.0 + (12.0 - math.log(4.0)) / 2.0)
    standard = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
    known = [
        torch.distributions.kl_divergence(torch.distributions.Normal(means, sigma), standard)
        .sum(dim=1)
        .mean()
        for means in (expert, policy)
    ]
    assert divergence == pytest.approx(sum(known).item())


def test_the_loss_of_cloning_by_hand() -> None:
    # Numbers: the mean of 1, 4, 9, 16. Branches: the mean of −ln ½, −ln ¼, −ln ¼, −ln ½.
    errors = torch.tensor([[1.0, 4.0], [9.0, 16.0]])
    log_choices = torch.tensor([[0.5, 0.5, 0.25, 0.75], [0.75, 0.25, 0.5, 0.5]]).log()
    choices = torch.tensor([[0, 2], [1, 3]])
    cross_entropy = (2.0 * math.log(2.0) + 2.0 * math.log(4.0)) / 4.0
    nothing = torch.empty((2, 0), dtype=torch.int64)
    assert cloning_loss(errors, None, nothing).item() == 7.5
    assert cloning_loss(None, log_choices, choices).item() == pytest.approx(cross_entropy)
    assert cloning_loss(errors, log_choices, choices).item() == pytest.approx(7.5 + cross_entropy)


def test_a_demonstrated_choice_is_to_be_best_by_a_margin() -> None:
    # Two branches, of three choices and of two. Row 0: max(1, 2.8, 0.8) + max(0, 0.8 + 0.3) − (1 + 0);
    # row 1: every demonstrated choice is best by more than the margin, which is enough.
    q = torch.tensor([[1.0, 2.0, 0.0, 0.0, 0.3], [5.0, 1.0, 1.0, 0.0, 2.0]], requires_grad=True)
    choices = torch.tensor([[0, 3], [0, 4]])
    loss = large_margin_loss(q, choices, (3, 2), 0.8)
    assert loss.item() == pytest.approx((2.8 + 1.1 - 1.0 + 0.0) / 2)
    (gradient,) = torch.autograd.grad(loss, q)
    assert gradient.tolist() == [[-0.5, 0.5, 0.0, -0.5, 0.5], [0.0] * 5]
