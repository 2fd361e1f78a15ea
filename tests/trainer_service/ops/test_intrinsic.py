from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trainer_service.ops.intrinsic import (
    ReturnScale,
    distillation_error,
    forward_error,
    inverse_error,
    updated_scale,
)


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values)


def test_a_forward_error_is_half_the_squared_distance() -> None:
    errors = forward_error(rows([1.0, 2.0], [0.0, 0.0]), rows([1.0, 5.0], [0.0, 0.0]))
    assert errors.tolist() == [4.5, 0.0]


def test_a_distillation_error_is_the_whole_squared_distance() -> None:
    assert distillation_error(rows([1.0, 2.0]), rows([4.0, 6.0])).tolist() == [25.0]


def test_an_inverse_error_adds_numbers_and_branches() -> None:
    # Squares: 0.25 + 1. Probabilities of the choices: ½ of two equal ones, and 3/4 of logits 0 and ln 3.
    logits = rows([0.0, 0.0, 0.0, math.log(3.0)])
    choices = torch.tensor([[1, 3]])
    error = inverse_error(rows([0.5, -1.0]), rows([0.0, 0.0]), logits, choices, (2, 2))
    assert error.item() == pytest.approx(1.25 + math.log(2.0) + math.log(4.0 / 3.0))


def test_a_scale_is_the_root_mean_square_of_sums() -> None:
    scale = updated_scale(ReturnScale(0.0, 0.0), np.array([4.0, 4.0, 8.0]))
    assert scale == (3.0, 32.0)
    assert scale.deviation == pytest.approx(math.sqrt(32.0))
    # One more, of 0: (96 + 0)/4 = 24.
    assert updated_scale(scale, np.zeros(1)) == (4.0, 24.0)
