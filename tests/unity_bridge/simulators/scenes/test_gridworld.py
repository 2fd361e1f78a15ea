from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from unity_bridge.simulators.scenes.gridworld import BEHAVIOR, BEST_MEAN_RETURN, GridWorld

CELLS = [(row, column) for row in range(5) for column in range(5)]


def ways_to(goal: tuple[int, int], wrong: tuple[int, int]) -> dict[tuple[int, int], int]:
    """The length of the shortest way around the wrong goal from each cell."""
    ways = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            before = cell[0] + down, cell[1] + right
            if before in CELLS and before not in ways and before != wrong:
                ways[before] = ways[cell] + 1
                queue.append(before)
    return ways


def test_best_mean_return_averages_shortest_ways_over_boards() -> None:
    ways = [
        length
        for goal in CELLS
        for wrong in CELLS
        if goal != wrong
        for cell, length in ways_to(goal, wrong).items()
        if cell != goal
    ]
    assert len(ways) == 25 * 24 * 23
    assert pytest.approx(1 - 0.01 * np.mean(ways), abs=1e-4) == BEST_MEAN_RETURN


def test_bytes_and_floats_show_the_same() -> None:
    compressed = GridWorld(20).reset(3)[BEHAVIOR].observations
    plain = GridWorld(20, pictures="float").reset(3)[BEHAVIOR].observations
    assert compressed[0].dtype == np.uint8
    assert plain[0].dtype == np.float32
    np.testing.assert_array_equal(compressed[0] / np.float32(255), plain[0])
    np.testing.assert_array_equal(compressed[1], plain[1])
