"""PPO's loss: its gradient in closed form beside autograd of the paper's terms, and its parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ppo_cases import loss_of_the_paper

from trainer_service.ops import distributions as dist
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps, ppo_loss, return_range

KINDS = [(2, (), 1), (0, (3,), 1), (0, (3, 2, 4), 2), (1, (2, 3), 2), (3, (5,), 1)]
"""Continuous actions, branches, reward signals."""


def random_case(continuous: int, branches: tuple[int, ...], signals: int, rows: int = 40) -> dict[str, Any]:
    torch.manual_seed(continuous + 10 * len(branches) + signals)
    choices = sum(branches)
    allowed = torch.rand(rows, choices) < 0.7
    discrete = torch.zeros(rows, len(branches), dtype=torch.int64)
    for branch, (start, size) in enumerate(zip(dist.choice_offsets(branches), branches, strict=True)):
        discrete[:, branch] = torch.randint(size, (rows,))
        allowed[torch.arange(rows), start + discrete[:, branch]] = True
    mean = torch.randn(rows, continuous, dtype=torch.float64)
    log_sigma = torch.randn(continuous, dtype=torch.float64) * 0.3
    logits = torch.randn(rows, choices, dtype=torch.float64)
    action = mean + torch.randn_like(mean) * log_sigma.exp()
    indices = discrete + torch.tensor(dist.choice_offsets(branches), dtype=torch.int64)
    old = torch.zeros(rows, dtype=torch.float64)
    if continuous:
        old = old + dist.gaussian_log_prob(action, mean, log_sigma)
    if branches:
        old = old + dist.categorical_log_prob(dist.masked_log_softmax(logits, allowed, branches), indices)
    batch = PPOBatch(
        continuous_actions=action,
        discrete_actions=indices,
        allowed_actions=allowed,
        old_log_prob=old + 0.3 * torch.randn(rows, dtype=torch.float64),  # some ratios beyond the clip
        advantage=torch.randn(rows, dtype=torch.float64),
        old_value=torch.randn(rows, signals, dtype=torch.float64),
        return_=torch.randn(rows, signals, dtype=torch.float64),
    )
    values = batch.old_value + torch.randn(rows, signals).double() * 0.3
    return {
        "outputs": [each.requires_grad_() for each in (mean, log_sigma, logits, values)],
        "batch": batch,
        "steps": PPOSteps(
            learning_rate=3e-4,
            clip_epsilon=0.2,
            value_clip_range=torch.full((signals,), 0.25, dtype=torch.float64),
            value_coefficient=0.5,
            entropy_coefficient=0.01,
            max_grad_norm=None,
        ),
    }


@pytest.mark.parametrize(("continuous", "branches", "signals"), KINDS)
def test_the_closed_form_equals_autograd_of_the_papers_terms(
    continuous: int, branches: tuple[int, ...], signals: int
) -> None:
    case = random_case(continuous, branches, signals)
    outputs = case["outputs"]
    loss, parts = ppo_loss(*outputs, case["batch"], case["steps"], branches)
    plain, expected_parts = loss_of_the_paper(*outputs, case["batch"], case["steps"], branches)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(parts, expected_parts, check_dtype=False)
    assert not parts.requires_grad
    assert 0 < float(parts[3]) < 1, "the case must have clipped and unclipped rows"
    factor = 3.0  # that autograd multiplies by what comes after the loss
    gradients = torch.autograd.grad(factor * loss, outputs, allow_unused=True)
    expected = torch.autograd.grad(factor * plain, outputs, allow_unused=True)
    for gradient, reference in zip(gradients, expected, strict=True):
        if reference is not None and reference.numel():
            torch.testing.assert_close(gradient, reference)


def test_the_range_of_returns_counts_what_the_critic_thought_of_them() -> None:
    batch = random_case(0, (3,), 2)["batch"]._replace(
        return_=torch.tensor([[1.0, -2.0], [1.0, 0.0]]), old_value=torch.tensor([[0.0, -1.0], [7.0, -1.0]])
    )
    assert return_range(batch).tolist() == [7.0, 2.0]
