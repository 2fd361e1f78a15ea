"""Trajectories cut into runs of steps."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.learning.rollout.trajectories import split_into_sequences


def test_trajectories_are_cut_from_their_starts() -> None:
    ranges = split_into_sequences(np.array([5, 2, 4]), longest=2)
    assert ranges.starts.tolist() == [0, 2, 4, 5, 7, 9]
    assert ranges.lengths.tolist() == [2, 2, 1, 2, 2, 2]


def test_selected_ranges_keep_their_order_and_fill_from_the_left() -> None:
    ranges = split_into_sequences(np.array([5, 2, 4]), longest=3).select(np.array([3, 1]))
    assert ranges.steps().tolist() == [7, 8, 9, 3, 4]
    assert ranges.filled().tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("longest", [1, 3, 64])
def test_every_step_is_in_exactly_one_range(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lengths = rng.integers(1, 100, size=30)
    ranges = split_into_sequences(lengths, longest)
    assert ranges.steps().tolist() == list(range(lengths.sum()))
    assert ranges.lengths.max() <= longest
    owner = np.repeat(np.arange(30), lengths)
    ends = ranges.starts + ranges.lengths - 1
    np.testing.assert_array_equal(owner[ranges.starts], owner[ends])
    assert len(ranges) == sum(-(-length // longest) for length in lengths.tolist())
    assert ranges.filled().sum() == lengths.sum()
