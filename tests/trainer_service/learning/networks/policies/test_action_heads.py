"""Action heads: numbers, choices, and both."""

from __future__ import annotations

import math

import pytest
import torch

from trainer_service.learning.networks.policies.action_heads import ActionHeads, ActionParameters
from unity_bridge.specs import ActionSpec

HYBRID = ActionSpec(2, (3, 2))


def heads(spec: ActionSpec = HYBRID) -> tuple[ActionHeads, ActionParameters]:
    """Heads and what they say of 400 rows of features, sharper than fresh ones would."""
    torch.manual_seed(5)
    made = ActionHeads(8, spec)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
        return made, made(torch.randn(400, 8))


def everything(spec: ActionSpec) -> torch.Tensor:
    return torch.ones(400, spec.mask_size, dtype=torch.bool)


@pytest.mark.parametrize("spec", [HYBRID, ActionSpec(2), ActionSpec(0, (4,)), ActionSpec(0, (3, 2))])
def test_the_density_of_a_draw_is_that_of_its_action(spec: ActionSpec) -> None:
    made, parameters = heads(spec)
    allowed = everything(spec)
    drawn = made.sample(parameters, allowed, torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn[2], made.log_prob(parameters, allowed, *drawn[:2]))
    likeliest = made.most_likely(parameters, allowed)
    torch.testing.assert_close(likeliest[2], made.log_prob(parameters, allowed, *likeliest[:2]))
    assert (likeliest[2] >= drawn[2] - 1e-5).all()


def test_the_likeliest_action_by_hand() -> None:
    made, _ = heads()
    parameters = ActionParameters(
        torch.tensor([[0.3, -4.0]]), torch.zeros(2), torch.tensor([[0.0, 2.0, 1.0, 5.0, 4.0]])
    )
    allowed = torch.tensor([[True, False, True, True, True]])
    continuous, discrete, log_prob = made.most_likely(parameters, allowed)
    assert continuous.tolist() == parameters.mean.tolist()
    assert discrete.tolist() == [[2, 0]]
    # Two unit Gaussians at their peaks; the first branch chooses among the logits 0 and 1, the second 5 and 4.
    choice = math.log(math.e / (1 + math.e))
    assert log_prob.item() == pytest.approx(-math.log(2 * math.pi) + 2 * choice)


def test_masks_hold_in_every_branch_and_for_each_row_alone() -> None:
    made, parameters = heads()
    allowed = torch.rand(400, 5, generator=torch.Generator().manual_seed(2)) < 0.6
    allowed[:, 0] = allowed[:, 3] = True
    rows = torch.arange(400)
    for seed in range(5):
        _, discrete, log_prob = made.sample(parameters, allowed, torch.Generator().manual_seed(seed))
        assert allowed[rows, discrete[:, 0]].all()
        assert allowed[rows, 3 + discrete[:, 1]].all()
        assert torch.isfinite(log_prob).all()


def test_entropy_adds_the_kinds_in_ml_agents_scale() -> None:
    made, _ = heads()
    uniform = ActionParameters(torch.zeros(400, 2), torch.zeros(2), torch.zeros(400, 5))
    # The mean over the numbers, the sum over the branches.
    expected = 0.5 * math.log(2 * math.pi * math.e) + math.log(3) + math.log(2)
    assert made.entropy(uniform, everything(HYBRID)).item() == pytest.approx(expected)
