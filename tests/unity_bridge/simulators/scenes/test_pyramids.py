from __future__ import annotations

import itertools
from collections import deque

import numpy as np
import pytest

from unity_bridge.side_channels import Aggregation, parse_stat, unpack_records
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import choices
from unity_bridge.simulators.scenes.pyramids import (
    BEHAVIOR,
    BEST_MEAN_RETURN,
    BRICK,
    DOWN,
    LEFT,
    MAP,
    MAX_DECISIONS,
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


def pressed(steps: StepBatch) -> np.ndarray:
    """The agents that have pressed their switch. Shape [N]."""
    return steps.observations[1][:, 22:].any(axis=1)


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


def towards(here: Cell, goal: Cell) -> int:
    ways = ways_to(goal)
    return min(MOVES, key=lambda move: ways[moved(here, move)])


def search(steps: StepBatch) -> ActionBatch:
    """Plays by observations alone: to the thing that is seen, or to the middle of its room, which sees it."""
    moves, is_pressed = [], pressed(steps)
    for row, here in enumerate(places(steps)):
        seen = thing(steps, row)
        lookout = (1, 17 if is_pressed[row] else 1)
        moves.append(towards(here, seen[1] if seen else lookout) if seen or here != lookout else STAY)
    return choices(np.array(moves))


def everybody(action: int, agents: int) -> dict[str, ActionBatch]:
    return {BEHAVIOR: choices(np.full(agents, action))}


def test_observations_suffice_to_find_the_brick(play) -> None:
    episodes = [episode for ended in play(Pyramids(12), search, steps=150).values() for episode in ended]
    assert len(episodes) > 24
    for return_, decisions, terminated in episodes:
        assert terminated
        assert return_ == pytest.approx(2 - 0.001 * decisions, abs=1e-4)
        assert return_ > 1.94


def test_the_best_mean_return_is_that_of_the_shortest_ways() -> None:
    switches, starts, pyramids = cells("w"), cells("a"), cells("p")
    to_switch = np.mean([ways_to(switch)[start] for switch in switches for start in starts])
    to_pyramid = np.mean([ways_to(pyramid)[switch] for pyramid in pyramids for switch in switches])
    assert pytest.approx(2 - 0.001 * (to_switch + to_pyramid + 1), abs=1e-4) == BEST_MEAN_RETURN


def chances_of_a_random_walk(decisions: int) -> tuple[float, float]:
    """The exact probabilities that the switch is pressed and that the brick is taken, over all places."""
    order = {cell: index for index, cell in enumerate(FLOOR)}
    walk = np.zeros((len(order), len(order)))
    for cell, move in itertools.product(FLOOR, MOVES):
        walk[order[cell], order[moved(cell, move)]] += 1 / len(MOVES)
    start = np.isin(list(FLOOR.values()), "a") / len(cells("a"))
    pressing, taking = [], []
    for switch in cells("w"):
        at_switch = arrivals(np.tile(start, (decisions, 1)) * first(decisions), walk, order[switch])
        pressing.append(at_switch.sum())
        entering = np.zeros((decisions, len(order)))
        entering[:, order[switch]] = at_switch
        # Toppling leaves the agent beside the brick, and takes a decision more: leaving that out is generous.
        taking += [arrivals(entering, walk, order[pyramid]).sum() for pyramid in cells("p")]
    return float(np.mean(pressing)), float(np.mean(taking))


def first(decisions: int) -> np.ndarray:
    return np.eye(decisions)[0][:, None]


def arrivals(entering: np.ndarray, walk: np.ndarray, goal: int) -> np.ndarray:
    """How likely it is to reach a goal for the first time at each decision.

    Args:
        entering: how likely it is to begin in each cell, at each decision, shape [T, C].
        walk: from each cell to each, shape [C, C].
    """
    here, reached = np.zeros(len(walk)), np.zeros(len(entering))
    for decision, enters in enumerate(entering):
        here = (here + enters) @ walk
        reached[decision], here[goal] = here[goal], 0
    return reached


def test_random_agents_press_switches_but_hardly_take_bricks() -> None:
    pressing, taking = chances_of_a_random_walk(MAX_DECISIONS)
    assert pressing == pytest.approx(0.082, abs=0.001)
    assert 1e-6 < taking < 3e-6


def test_random_play_earns_nothing(play) -> None:
    rng = np.random.default_rng(0)
    episodes = play(
        Pyramids(200), lambda steps: choices(rng.integers(5, size=len(steps))), steps=MAX_DECISIONS
    )
    for ended in episodes.values():
        assert ended == [(pytest.approx(-0.12, abs=1e-4), MAX_DECISIONS, False)]


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


def test_a_pyramid_is_in_the_way_until_it_falls() -> None:
    scene = Pyramids(1)
    steps = scene.reset(5)[BEHAVIOR]
    while not ((seen := thing(steps, 0)) and seen[0] == BRICK):
        before = steps
        steps = scene.step(scene.expert())[BEHAVIOR]
    assert places(steps) == places(before)
    stood, lies = thing(before, 0), thing(steps, 0)
    assert stood is not None
    assert stood[1] == lies[1]


def test_pressing_is_observed_and_raises_the_pyramid() -> None:
    scene = Pyramids(50)
    steps = scene.reset(0)[BEHAVIOR]
    assert not pressed(steps).any()
    assert {FLOOR[cell] for cell in places(steps)} == {"a"}
    stood: set[Cell] = set()
    while len(stood) < 9:
        steps = scene.step(scene.expert())[BEHAVIOR]
        for row in range(steps.num_terminal, len(steps)):
            seen = thing(steps, row)
            if seen:
                assert FLOOR[seen[1]] == ("w" if seen[0] == SWITCH else "p")
                assert pressed(steps)[row] == (seen[0] != SWITCH)
                stood |= {seen[1]} if seen[0] == PYRAMID else set()


@pytest.mark.parametrize("move", MOVES)
def test_moves_reach_the_next_cell_unless_walled(move: int) -> None:
    scene = Pyramids(40)
    steps = scene.reset(move)[BEHAVIOR]
    for _ in range(12):
        before = places(steps)
        steps = scene.step(everybody(move, 40))[BEHAVIOR]
        assert places(steps) == [moved(cell, move) for cell in before]


def test_rays_end_at_walls() -> None:
    scene = Pyramids(30)
    steps = scene.reset(8)[BEHAVIOR]
    rng = np.random.default_rng(8)
    for _ in range(40):
        steps = scene.step({BEHAVIOR: choices(rng.integers(5, size=30))})[BEHAVIOR]
        hits, away = rays(steps)
        for row, here in enumerate(places(steps)):
            for ray, (down, right) in enumerate(RAYS):
                if hits[row, ray] == WALL:
                    free = [(here[0] + down * far, here[1] + right * far) for far in range(1, away[row, ray])]
                    assert set(free) <= set(FLOOR)
                    end = (here[0] + down * int(away[row, ray]), here[1] + right * int(away[row, ray]))
                    assert end not in FLOOR


def test_switches_and_bricks_are_counted() -> None:
    academy = Academy()
    scene = Pyramids(20, academy)
    scene.reset(0)
    ended = sum(scene.step(scene.expert())[BEHAVIOR].num_terminal for _ in range(100))
    steps = [parse_stat(record.body) for record in unpack_records(academy.outgoing())]
    assert {stat.aggregation for stat in steps} == {Aggregation.SUM}
    counts = {
        name: sum(s.value for s in steps if s.name == name) for name in ("Switch/Pressed", "Brick/Taken")
    }
    assert counts["Brick/Taken"] == ended > 0
    assert ended <= counts["Switch/Pressed"] <= ended + 20


def test_pictures_show_the_agent_and_the_thing() -> None:
    scene = Pyramids(3)
    scene.reset(0)
    pictures = [scene.render()]
    for _ in range(60):
        scene.step(scene.expert())
        pictures.append(scene.render())
    assert {picture.shape for picture in pictures} == {(2 * 64, 2 * 20 * 16, 3)}
    assert not np.array_equal(pictures[0], pictures[1])
    gold = [(picture == (250, 200, 40)).all(axis=2).any() for picture in pictures]
    assert any(gold)
    assert not all(gold)
