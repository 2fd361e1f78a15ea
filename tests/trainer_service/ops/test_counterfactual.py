"""Numbers worked by hand for COMA."""

from __future__ import annotations

import pytest
import torch

from trainer_service.ops.counterfactual import counterfactual_baseline, explored_log_probs
from trainer_service.ops.distributions import masked_log_softmax

LOGITS = torch.tensor([[1.0, 0.0, -1.0, 2.0]])
ALLOWED = torch.tensor([[True, True, False, True]])


def explored(exploration: float, allowed: torch.Tensor | None = ALLOWED) -> torch.Tensor:
    return explored_log_probs(masked_log_softmax(LOGITS, allowed, (4,)), allowed, exploration)


def test_exploration_goes_to_allowed_choices_only() -> None:
    assert explored(0.0).exp()[0].tolist() == pytest.approx([0.244728, 0.090031, 0.0, 0.665241], abs=1e-6)
    assert explored(0.3).exp()[0].tolist() == pytest.approx([0.271310, 0.163021, 0.0, 0.565669], abs=1e-6)


def test_an_action_is_compared_with_the_policys_average() -> None:
    q = torch.tensor([[1.0, 2.0, 9.0, 0.0]])
    assert (q[:, 1] - counterfactual_baseline(q, explored(0.3))).tolist() == pytest.approx(
        [1.402647], abs=1e-6
    )


def test_what_a_forbidden_choice_is_worth_does_not_matter() -> None:
    q = torch.tensor([[1.0, 2.0, float("inf"), 0.0]])
    assert counterfactual_baseline(q, explored(0.3)).tolist() == pytest.approx([0.597353], abs=1e-6)


def test_on_average_there_is_no_advantage() -> None:
    torch.manual_seed(3)
    q, log_probs = torch.randn(50, 4, 2), torch.log_softmax(torch.randn(50, 4), dim=1)
    each = q - counterfactual_baseline(q, log_probs).unsqueeze(1)
    assert torch.allclose((log_probs.exp().unsqueeze(2) * each).sum(dim=1), torch.zeros(50, 2), atol=1e-5)
