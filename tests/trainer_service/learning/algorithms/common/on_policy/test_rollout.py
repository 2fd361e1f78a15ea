"""How the rows of a rollout are laid out in minibatches."""

from __future__ import annotations

import pytest

from trainer_service.learning.algorithms.common.on_policy.rollout import minibatch_slices


@pytest.mark.parametrize(
    ("rows", "batch_size", "sizes"),
    [(256, 32, [32] * 8), (257, 32, [32] * 7 + [33]), (271, 32, [32] * 7 + [47]), (272, 32, [32] * 8 + [16]),
     (20, 32, [20]), (5, 1, [1] * 5), (5, 2, [2, 2, 1]), (0, 32, [])],
)  # fmt: skip
def test_less_than_half_a_minibatch_joins_the_last(rows: int, batch_size: int, sizes: list[int]) -> None:
    slices = minibatch_slices(rows, batch_size)
    assert [each.stop - each.start for each in slices] == sizes
    assert [row for each in slices for row in range(rows)[each]] == list(range(rows))
