import pytest
import torch

from trainer_service.ops.losses import clipped_surrogate_loss, clipped_value_loss


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
