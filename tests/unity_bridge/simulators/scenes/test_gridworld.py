from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest

from unity_bridge.simulators.scenes.gridworld import (
    BEHAVIOR,
    BEST_MEAN_RETURN,
    DOWN,
    LEFT,
    PLUS,
    RIGHT,
    STAY,
    UP,
    GridWorld,
)
from unity_bridge.steps import ActionBatch, StepBatch

SIDE = 5
COLORS = {"plus": (60, 210, 90), "ex": (240, 70, 60), "agent": (70, 130, 255)}
MOVES = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}


def seen(picture: np.ndarray) -> dict[str, tuple[int, int]]:
    """Row and column of everything in a picture, found by its colour alone."""
    if picture.dtype != np.uint8:
        picture = np.rint(picture * 255).astype(np.uint8)
    found = {}
    for name, color in COLORS.items():
        rows, columns = np.nonzero((picture == np.array(color)[:, None, None]).all(axis=0))
        if len(rows):
            found[name] = (round(rows.mean() - 2) // 16, round(columns.mean() - 2) // 16)
    return found


def neighbours(cell: tuple[int, int]) -> Iterator[tuple[int, tuple[int, int]]]:
    for move, (down, right) in MOVES.items():
        row, column = cell[0] + down, cell[1] + right
        if 0 <= row < SIDE and 0 <= column < SIDE:
            yield move, (row, column)


def first_moves(goal: tuple[int, int], wrong: tuple[int, int]) -> dict[tuple[int, int], tuple[int, int]]:
    """The length of the shortest way around the wrong goal from each cell, and its first move."""
    ways = {goal: (0, STAY)}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for move, before in neighbours(cell):
            if before not in ways and before != wrong:
                back = {UP: DOWN, DOWN: UP, LEFT: RIGHT, RIGHT: LEFT}[move]
                ways[before] = (ways[cell][0] + 1, back)
                queue.append(before)
    return ways


def walk(steps: StepBatch, *, rightly: bool = True) -> ActionBatch:
    """Looks at the pictures and the goals only."""
    moves = []
    for picture, goal in zip(*steps.observations, strict=True):
        places = seen(picture)
        asked, other = ("plus", "ex") if goal[PLUS] == rightly else ("ex", "plus")
        moves.append([first_moves(places[asked], places[other])[places["agent"]][1]])
    return ActionBatch(np.zeros((len(moves), 0), np.float32), np.array(moves, np.int32))


def test_best_mean_return_averages_shortest_ways_over_boards() -> None:
    cells = [(row, column) for row in range(SIDE) for column in range(SIDE)]
    ways = [
        length
        for goal in cells
        for wrong in cells
        if goal != wrong
        for cell, (length, _) in first_moves(goal, wrong).items()
        if cell != goal
    ]
    assert len(ways) == 25 * 24 * 23
    assert pytest.approx(1 - 0.01 * np.mean(ways), abs=1e-4) == BEST_MEAN_RETURN


def test_the_wrong_goal_costs_one_and_ends_the_episode(play) -> None:
    episodes = play(GridWorld(3), lambda steps: walk(steps, rightly=False), steps=20)
    for ended in episodes.values():
        for return_, decisions, terminated in ended:
            assert return_ == pytest.approx(-1 - 0.01 * decisions, abs=1e-5)
            assert terminated


def test_bytes_and_floats_show_the_same() -> None:
    compressed = GridWorld(20).reset(3)[BEHAVIOR].observations
    plain = GridWorld(20, pictures="float").reset(3)[BEHAVIOR].observations
    assert compressed[0].dtype == np.uint8
    assert plain[0].dtype == np.float32
    np.testing.assert_array_equal(compressed[0] / np.float32(255), plain[0])
    np.testing.assert_array_equal(compressed[1], plain[1])


def test_moves_into_the_wall_are_masked_and_no_others() -> None:
    steps = GridWorld(100).reset(1)[BEHAVIOR]
    for picture, allowed in zip(steps.observations[0], steps.allowed_actions, strict=True):
        possible = {move for move, _ in neighbours(seen(picture)["agent"])} | {STAY}
        assert set(np.flatnonzero(allowed).tolist()) == possible


@pytest.mark.parametrize("move", range(5))
def test_moves_reach_the_next_cell_unless_forbidden(act, move: int) -> None:
    scene = GridWorld(60)
    before = scene.reset(move)[BEHAVIOR]
    steps = scene.step(act(BEHAVIOR, discrete=[[move]] * 60))[BEHAVIOR]
    after = {int(agent): row for row, agent in reversed(list(enumerate(steps.agent_ids)))}
    for agent in range(60):
        cell = seen(before.observations[0][agent])["agent"]
        expected = dict(neighbours(cell)).get(move, cell)
        assert seen(steps.observations[0][after[agent]])["agent"] == expected
