from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from unity_bridge.simulators.scenes.pyramids import BEST_MEAN_RETURN, MAP

Cell = tuple[int, int]

FLOOR = {
    (row, column): kind for row, line in enumerate(MAP) for column, kind in enumerate(line) if kind != "#"
}


def ways_to(goal: Cell) -> dict[Cell, int]:
    """How many moves it takes from each cell."""
    ways = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            there = (cell[0] + down, cell[1] + right)
            if there in FLOOR and there not in ways:
                ways[there] = ways[cell] + 1
                queue.append(there)
    return ways


def cells(kind: str) -> list[Cell]:
    return [cell for cell, its in FLOOR.items() if its == kind]


def test_the_best_mean_return_is_that_of_the_shortest_ways() -> None:
    switches, starts, pyramids = cells("w"), cells("a"), cells("p")
    to_switch = np.mean([ways_to(switch)[start] for switch in switches for start in starts])
    to_pyramid = np.mean([ways_to(pyramid)[switch] for pyramid in pyramids for switch in switches])
    assert pytest.approx(2 - 0.001 * (to_switch + to_pyramid + 1), abs=1e-4) == BEST_MEAN_RETURN
