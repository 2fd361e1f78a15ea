import pytest
import torch

from trainer_service.ops import distributions as dist
from trainer_service.ops.losses import (
    PPOBatch,
    clipped_surrogate_loss,
    clipped_value_loss,
    ppo_gradients,
)


def test_surrogate_by_hand() -> None:
    ratio, advantage = torch.tensor([1.5, 0.5, 0.9]), torch.tensor([1.0, -1.0, 2.0])
    # min terms: 1.2·1, 0.8·(−1), 0.9·2
    loss = clipped_surrogate_loss(ratio.log(), torch.zeros(3), advantage, clip_epsilon=0.2)
    assert float(loss) == pytest.approx(-(1.2 - 0.8 + 1.8) / 3)


def test_value_loss_stops_pulling_outside_the_range() -> None:
    value = torch.tensor([[0.5], [0.1], [-3.0]], requires_grad=True)
    old, target = torch.zeros(3, 1), torch.ones(3, 1)
    loss = clipped_value_loss(value, old, target, clip_range=torch.tensor([0.2]))
    #  V has moved by 0.5 towards R: the clipped term (0.2 − 1)² is larger and flat.
    #  V has moved by 0.1: both terms are (0.1 − 1)².      V fled from R: the free term pulls it back.
    assert float(loss.detach()) == pytest.approx((0.64 + 0.81 + 16.0) / 3)
    loss.backward()
    torch.testing.assert_close(value.grad, torch.tensor([[0.0], [-0.9], [-4.0]]) * 2 / 3)


def random_case(continuous: int, branches: tuple[int, ...], signals: int, rows: int = 40) -> dict:
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
    targets = PPOBatch(
        continuous_actions=action,
        discrete_actions=indices,
        allowed_actions=allowed,
        old_log_prob=old + 0.3 * torch.randn(rows, dtype=torch.float64),  # some ratios beyond the clip
        advantage=torch.randn(rows, dtype=torch.float64),
        old_value=torch.randn(rows, signals, dtype=torch.float64),
        return_=torch.randn(rows, signals, dtype=torch.float64),
    )
    return {
        "outputs": [mean, log_sigma, logits, targets.old_value + torch.randn(rows, signals).double() * 0.3],
        "targets": targets,
        "branches": branches,
    }


@pytest.mark.parametrize(
    ("continuous", "branches", "signals"),
    [(2, (), 1), (0, (3,), 1), (0, (3, 2, 4), 2), (1, (2, 3), 2), (3, (5,), 1)],
)
def test_closed_form_gradients_equal_autograd_of_the_plain_losses(
    continuous: int, branches: tuple[int, ...], signals: int
) -> None:
    case = random_case(continuous, branches, signals)
    targets = case["targets"]
    outputs = [part.clone().requires_grad_() for part in case["outputs"]]
    mean, log_sigma, logits, values = outputs
    clip_range = torch.full((signals,), 0.25, dtype=torch.float64)

    log_prob, entropy = torch.zeros_like(targets.advantage), torch.zeros(()).double()
    if continuous:
        log_prob = dist.gaussian_log_prob(targets.continuous_actions, mean, log_sigma)
        entropy = dist.gaussian_entropy(log_sigma)
    if branches:
        log_choices = dist.masked_log_softmax(logits, targets.allowed_actions, branches)
        log_prob = log_prob + dist.categorical_log_prob(log_choices, targets.discrete_actions)
        entropy = entropy + dist.categorical_entropy(log_choices).mean()
    policy_loss = clipped_surrogate_loss(log_prob, targets.old_log_prob, targets.advantage, clip_epsilon=0.2)
    value_loss = clipped_value_loss(values, targets.old_value, targets.return_, clip_range=clip_range)
    loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
    expected = torch.autograd.grad(loss, outputs, allow_unused=True)

    result = ppo_gradients(
        *case["outputs"],
        targets,
        branches=branches,
        clip_epsilon=0.2,
        value_clip_range=clip_range,
        value_coefficient=0.5,
        entropy_coefficient=0.01,
    )
    for gradient, reference in zip(result[:4], expected, strict=True):
        if reference is not None and reference.numel():
            torch.testing.assert_close(gradient, reference)
    torch.testing.assert_close(result.losses[:3], torch.stack([policy_loss, value_loss, entropy]).detach())
    ratio = (log_prob - targets.old_log_prob).exp()
    assert float(result.losses[3]) == pytest.approx(float(((ratio - 1).abs() > 0.2).double().mean()))
    assert 0 < float(result.losses[3]) < 1, "the case must have clipped and unclipped rows"
