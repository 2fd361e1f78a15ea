from __future__ import annotations

import itertools
from collections import deque

import numpy as np
import pytest

from unity_bridge.simulators.scene import choices
from unity_bridge.simulators.scenes.pyramids import (
    BEHAVIOR,
    BEST_MEAN_RETURN,
    BRICK,
    DOWN,
    LEFT,
    MAP,
    PYRAMID,
    RIGHT,
    STAY,
    SWITCH,
    UP,
    WALL,
    Pyramids,
)
from unity_bridge.steps import ActionBatch, StepBatch

Cell = tuple[int, int]

MOVES = {STAY: (0, 0), UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
RAYS = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]
FLOOR = {
    (row, column): kind for row, line in enumerate(MAP) for column, kind in enumerate(line) if kind != "#"
}


def moved(cell: Cell, move: int) -> Cell:
    there = (cell[0] + MOVES[move][0], cell[1] + MOVES[move][1])
    return there if there in FLOOR else cell


def ways_to(goal: Cell) -> dict[Cell, int]:
    """How many moves it takes from each cell."""
    ways = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for move in MOVES:
            if (there := moved(cell, move)) not in ways:
                ways[there] = ways[cell] + 1
                queue.append(there)
    return ways


def cells(kind: str) -> list[Cell]:
    return [cell for cell, its in FLOOR.items() if its == kind]


def places(steps: StepBatch) -> list[Cell]:
    """The agents' places, as they observe them."""
    felt = steps.observations[1].reshape(len(steps), 2, 22)
    np.testing.assert_array_equal(felt.sum(axis=(1, 2)), 2)
    columns, rows = felt[:, :, :19].any(axis=1).argmax(axis=1), felt[:, :, 19:].any(axis=1).argmax(axis=1)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def rays(steps: StepBatch) -> tuple[np.ndarray, np.ndarray]:
    """The thing that each ray hits and its distance in cells. Shapes [N, 8]."""
    seen = steps.observations[0].reshape(len(steps), 8, 5)
    np.testing.assert_array_equal(seen[:, :, :4].sum(axis=2), 1)
    return seen[:, :, :4].argmax(axis=2), np.rint(seen[:, :, 4] * 19).astype(int)


def thing(steps: StepBatch, row: int) -> tuple[int, Cell] | None:
    """The kind and the place of the thing that an agent sees."""
    hits, away = rays(steps)
    for ray in np.flatnonzero(hits[row] != WALL):
        (down, right), far = RAYS[ray], int(away[row, ray])
        here = places(steps)[row]
        return int(hits[row, ray]), (here[0] + down * far, here[1] + right * far)
    return None


def everybody(action: int, agents: int) -> dict[str, ActionBatch]:
    return {BEHAVIOR: choices(np.full(agents, action))}


def test_the_best_mean_return_is_that_of_the_shortest_ways() -> None:
    switches, starts, pyramids = cells("w"), cells("a"), cells("p")
    to_switch = np.mean([ways_to(switch)[start] for switch in switches for start in starts])
    to_pyramid = np.mean([ways_to(pyramid)[switch] for pyramid in pyramids for switch in switches])
    assert pytest.approx(2 - 0.001 * (to_switch + to_pyramid + 1), abs=1e-4) == BEST_MEAN_RETURN


def test_switch_pyramid_and_brick_follow_one_another() -> None:
    scene = Pyramids(1)
    steps = scene.reset(3)[BEHAVIOR]
    kinds = []
    while not steps.num_terminal:
        seen = thing(steps, 0)
        kinds += [seen[0]] if seen else []
        if seen and steps.rewards[0] > 0:
            break
        steps = scene.step(scene.expert())[BEHAVIOR]
    assert [kind for kind, _ in itertools.groupby(kinds)] == [SWITCH, PYRAMID, BRICK]
    assert steps.rewards[0] == pytest.approx(1.999)
    assert steps.terminated[0]


@pytest.mark.parametrize("move", MOVES)
def test_moves_reach_the_next_cell_unless_walled(move: int) -> None:
    scene = Pyramids(40)
    steps = scene.reset(move)[BEHAVIOR]
    for _ in range(12):
        before = places(steps)
        steps = scene.step(everybody(move, 40))[BEHAVIOR]
        assert places(steps) == [moved(cell, move) for cell in before]
