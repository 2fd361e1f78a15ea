import pytest
import torch

from trainer_service.ops import distributions as dist
from trainer_service.ops.losses import PPOBatch, clipped_surrogate_loss, clipped_value_loss, ppo_loss
from trainer_service.ops.ppo_gradient import ppo_gradient


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
    batch = PPOBatch(
        continuous_actions=action,
        discrete_actions=indices,
        allowed_actions=allowed,
        old_log_prob=old + 0.3 * torch.randn(rows, dtype=torch.float64),  # some ratios beyond the clip
        advantage=torch.randn(rows, dtype=torch.float64),
        old_value=torch.randn(rows, signals, dtype=torch.float64),
        return_=torch.randn(rows, signals, dtype=torch.float64),
    )
    return {
        "outputs": [mean, log_sigma, logits, batch.old_value + torch.randn(rows, signals).double() * 0.3],
        "batch": batch,
        "log_prob": old,
        "branches": branches,
    }


@pytest.mark.parametrize(
    ("continuous", "branches", "signals"),
    [(2, (), 1), (0, (3,), 1), (0, (3, 2, 4), 2), (1, (2, 3), 2), (3, (5,), 1)],
)
def test_the_closed_form_equals_autograd_of_the_plain_loss(
    continuous: int, branches: tuple[int, ...], signals: int
) -> None:
    case = random_case(continuous, branches, signals)
    batch = case["batch"]
    outputs = [part.clone().requires_grad_() for part in case["outputs"]]
    settings = {
        "branches": branches,
        "clip_epsilon": 0.2,
        "value_clip_range": torch.full((signals,), 0.25, dtype=torch.float64),
        "value_coefficient": 0.5,
        "entropy_coefficient": 0.01,
    }
    loss = ppo_loss(*outputs, batch, **settings)
    expected = torch.autograd.grad(loss, outputs, allow_unused=True)

    result = ppo_gradient(*case["outputs"], batch, **settings)
    for gradient, reference in zip(result[:4], expected, strict=True):
        if reference is not None and reference.numel():
            torch.testing.assert_close(gradient, reference)
    log_prob = case["log_prob"]
    policy_loss = clipped_surrogate_loss(log_prob, batch.old_log_prob, batch.advantage, clip_epsilon=0.2)
    value_loss = clipped_value_loss(
        outputs[3], batch.old_value, batch.return_, clip_range=settings["value_clip_range"]
    )
    entropy = (policy_loss + 0.5 * value_loss - loss) / 0.01
    torch.testing.assert_close(result.losses[:3], torch.stack([policy_loss, value_loss, entropy]).detach())
    ratio = (log_prob - batch.old_log_prob).exp()
    assert float(result.losses[3]) == pytest.approx(float(((ratio - 1).abs() > 0.2).double().mean()))
    assert 0 < float(result.losses[3]) < 1, "the case must have clipped and unclipped rows"
