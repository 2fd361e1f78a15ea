from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.side_channels import FloatParameter
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scenes.sorter import BEHAVIOR, Sorter


def tiles_of(count: float) -> np.ndarray:
    """The tiles that 50 agents see: number, sine, cosine, touched. Shape [50, 20, 4]."""
    academy = Academy()
    academy.parameters.set(FloatParameter("num_tiles", count))
    tiles: np.ndarray = Sorter(50, academy).reset(0)[BEHAVIOR].observations[0]
    return tiles


@pytest.mark.parametrize("count", [2, 20])
def test_only_as_many_rows_are_used_as_there_are_tiles(count: int) -> None:
    tiles = tiles_of(count)
    assert tiles.shape == (50, 20, 4)
    assert not tiles[:, count:].any()
    numbers = np.rint(tiles[:, :count, 0] * 20).astype(int)
    assert all(len(set(row)) == count for row in numbers.tolist())
    assert set(numbers.ravel().tolist()) == set(range(1, 21))
    np.testing.assert_allclose((tiles[:, :count, 1:3] ** 2).sum(axis=2), 1, rtol=1e-5)


@pytest.mark.parametrize(("asked", "given"), [(-1.0, 2), (0.0, 2), (2.9, 2), (1e30, 20), (20.0, 20)])
def test_an_impossible_number_of_tiles_becomes_the_nearest(asked: float, given: int) -> None:
    assert tiles_of(asked).any(axis=2).sum(axis=1).tolist() == [given] * 50
