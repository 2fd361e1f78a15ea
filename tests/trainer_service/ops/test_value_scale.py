"""Numbers worked by hand for the running scale of returns."""

from __future__ import annotations

import pytest
import torch

from trainer_service.ops.losses import huber, squared
from trainer_service.ops.value_scale import (
    initial_return_moments,
    preserved,
    scale_of,
    updated_return_moments,
)


def returns(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def test_before_any_return_the_scale_is_narrow() -> None:
    mean, deviation = scale_of(initial_return_moments(1))
    assert mean.tolist() == [0.0]
    assert deviation.tolist() == pytest.approx([0.1])


def test_one_batch_is_its_own_scale() -> None:
    mean, deviation = scale_of(updated_return_moments(initial_return_moments(1), returns(1, 3)))
    assert mean.tolist() == pytest.approx([2.0])
    assert deviation.tolist() == pytest.approx([1.0])


def test_two_batches_weigh_nearly_the_same() -> None:
    moments = updated_return_moments(
        updated_return_moments(initial_return_moments(1), returns(1, 3)), returns(5, 7)
    )
    mean, deviation = scale_of(moments)
    assert mean.tolist() == pytest.approx([4.00001])
    assert deviation.square().tolist() == pytest.approx([5.0], abs=1e-4)


def test_a_new_scale_keeps_what_was_learned() -> None:
    weight, bias = preserved(
        torch.tensor([[2.0]]),
        torch.tensor([0.5]),
        (torch.tensor([1.0]), torch.tensor([2.0])),
        (torch.tensor([3.0]), torch.tensor([4.0])),
    )
    assert weight.tolist() == [[1.0]]
    assert bias.tolist() == [-0.25]


def test_large_errors_count_linearly() -> None:
    errors = torch.tensor([-12.0, 3.0, 10.0])
    assert huber(errors, 10.0).tolist() == pytest.approx([70.0, 4.5, 50.0])
    assert squared(errors, 10.0).tolist() == pytest.approx([72.0, 4.5, 50.0])
