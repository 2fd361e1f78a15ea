"""Batch normalization by hand: moments, normalized rows, the gradient through the moments, renormalization."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from trainer_service.ops.normalization import (
    EPSILON,
    BatchMoments,
    moments_of,
    normalize,
    renormalization,
    standardize,
)


def arrays(rows: int = 6, features: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((2, rows, features), (2, 1, features), (2, 1, features))
    x, weight, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return x, weight, bias


def test_moments_are_those_of_each_network() -> None:
    moments = moments_of(torch.tensor([[[1.0], [3.0]], [[10.0], [10.0]]]))
    assert moments.mean.tolist() == [[[2.0]], [[10.0]]]
    assert moments.variance.tolist() == [[[1.0]], [[0.0]]]


def test_a_small_variance_beside_a_large_mean_is_kept() -> None:
    rows = 1000.0 + 0.01 * torch.randn(1, 256, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        moments_of(rows).variance[0, 0], rows[0].var(dim=0, unbiased=False), rtol=0.01, atol=0
    )


def test_rows_are_normalized_scaled_and_shifted() -> None:
    moments = BatchMoments(torch.tensor([[[2.0]]]), torch.tensor([[[4.0 - EPSILON]]]))
    rows = normalize(
        torch.tensor([[[2.0], [6.0]]]), torch.tensor([[[3.0]]]), torch.tensor([[[1.0]]]), moments
    )
    assert rows.flatten().tolist() == pytest.approx([1.0, 7.0])


def test_the_gradient_passes_through_the_moments() -> None:
    x, weight, bias = arrays()
    ours = [each.clone().requires_grad_() for each in (x, weight, bias)]
    theirs = [each.clone().requires_grad_() for each in (x, weight, bias)]
    y = standardize(*ours, moments_of(ours[0]))
    expected = torch.stack(
        [
            functional.batch_norm(each, None, None, scale[0], shift[0], training=True, eps=EPSILON)
            for each, scale, shift in zip(*theirs, strict=True)
        ]
    )
    torch.testing.assert_close(y, expected)
    (y**3).sum().backward()
    (expected**3).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_renormalized_rows_are_those_of_the_running_moments_within_bounds() -> None:
    x, weight, bias = arrays()
    batch = moments_of(x)
    for running in (
        BatchMoments(batch.mean + 0.5, batch.variance * 2.0),
        BatchMoments(batch.mean, batch.variance),
    ):
        ratio, shift = renormalization(batch, running)
        rows = standardize(x, weight * ratio, bias + weight * shift, batch)
        torch.testing.assert_close(rows, normalize(x, weight, bias, running))
    ratio, shift = renormalization(batch, BatchMoments(batch.mean - 1e6, batch.variance * 1e6))
    assert ratio.min() == pytest.approx(1 / 3)
    assert ratio.max() == pytest.approx(1 / 3)
    assert (shift == 5.0).all()
