"""``sim:pyramids``: press a switch, topple the pyramid that appears far away, take its golden brick."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats, Integers
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.rendering.drawing import INK, Canvas
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.single_behavior import AgentSelection, SingleBehaviorScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation

BEHAVIOR = "Pyramids?team=0"
MAP = (
    "www#....aaa#....ppp",
    "www#...#aaa#...#ppp",
    "www....#aaa....#ppp",
)
"""Walls (#), and where the switch (w), agents (a) and pyramids (p) may be."""
STAY, UP, DOWN, LEFT, RIGHT = range(5)
SWITCH, PYRAMID, BRICK = range(3)
"""Kinds of the one thing that lies around, in the order in which agents meet them."""
RAYS = 8
WALL = 3
"""The kind that a ray hits if it hits no thing."""
RAY_SIZE = 5
FARTHEST = 19
STEP_REWARD = -0.001
BRICK_REWARD = 2.0
MAX_DECISIONS = 120
BEST_MEAN_RETURN = 1.963
"""The mean return of the shortest ways to switch and pyramid, with one decision to topple it, over all places."""

_SIZE = 16
_ROW_MOVES = np.array([0, -1, 1, 0, 0])
_COLUMN_MOVES = np.array([0, 0, 0, -1, 1])
_RAY_STEPS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


class Pyramids(SingleBehaviorScene):
    """N rows of five rooms of 3 by 3 cells, with an agent each, which starts in the middle one.

    In the leftmost room is a switch. Walking onto it presses it: it is gone, and in the rightmost room a
    pyramid stands. Walking into it topples it, and where it stood lies a golden brick to walk onto. Nothing
    earns anything before the brick is taken, and by chance that hardly ever happens: a policy that draws its moves
    presses the switch in 8 episodes of 100, and takes the brick in about 2 of a million. Doors are never opposite
    each other, so that a policy that merely leans to one side does not get far.

    Observations: ``RayPerceptionSensor`` (40), eight rays clockwise from up, each one-hot what it hits (switch,
    pyramid, brick, wall) and how far off that is, in units of 19 cells; ``VectorSensor_size44``: the agent's column
    and row, one-hot, in the first half until the switch is pressed and in the second half from then on. Action: one
    branch of 5: stay, up, down, left, right; an agent that bumps into a wall stays. Reward: −0.001 a decision, +2
    for the brick, which ends the episode. After 120 decisions it is interrupted. Where agent, switch and pyramid are
    is drawn for each episode, so the best return varies: 2 − 0.001 for each decision of the way, 1.963 in the mean.

    Statistics: ``Switch/Pressed`` and ``Brick/Taken``, how many were.
    """

    behavior = BEHAVIOR
    frame_s = 0.1
    cell = ((len(MAP[0]) + 1) * _SIZE, (len(MAP) + 1) * _SIZE)
    columns = 2

    def __init__(self, agents: int = 16, academy: Academy | None = None) -> None:
        super().__init__(agents, academy)
        self._agents = np.zeros(agents, np.int64)
        self._things = np.zeros(agents, np.int64)
        """Cells of the switch, the pyramid or the brick."""
        self._kinds = np.zeros(agents, np.int64)
        self._decisions = np.zeros(agents, np.int64)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensors = (
            vector_sensor("RayPerceptionSensor", RAYS * RAY_SIZE),
            vector_sensor(f"VectorSensor_size{2 * _PLACES.shape[1]}", 2 * _PLACES.shape[1]),
        )
        return {BEHAVIOR: BehaviorSpec(sensors, ActionSpec(discrete_branches=(len(_ROW_MOVES),)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        taken = self._move(actions[BEHAVIOR].discrete[:, 0])
        rewards = STEP_REWARD + BRICK_REWARD * taken
        ended = taken | (self._decisions >= MAX_DECISIONS)
        return self._next_steps(rewards, terminated=taken, ended=ended)

    def expert(self) -> Mapping[str, ActionBatch]:
        distances = _distances()[_NEXT[self._agents], self._things[:, None]]
        return {BEHAVIOR: choices(distances.argmin(axis=1))}

    def _start(self, which: AgentSelection) -> None:
        count = self._num(which)
        self._agents[which] = self._rng.choice(_STARTS, count)
        self._things[which] = self._rng.choice(_SWITCHES, count)
        self._kinds[which] = SWITCH
        self._decisions[which] = 0

    def _move(self, chosen: NDArray[np.int32]) -> Bools:
        """Moves all agents, presses switches, topples pyramids in their way. Returns the agents that took a brick."""
        cells = _NEXT[self._agents, chosen]
        reached = cells == self._things
        pressed = reached & (self._kinds == SWITCH)
        toppled = reached & (self._kinds == PYRAMID)
        taken: Bools = reached & (self._kinds == BRICK)
        self._agents = np.where(toppled, self._agents, cells)  # a pyramid is in the way until it falls
        self._kinds += pressed | toppled
        self._things[pressed] = self._rng.choice(_PYRAMIDS, np.count_nonzero(pressed))
        self._decisions += 1
        self._count("Switch/Pressed", pressed)
        self._count("Brick/Taken", taken)
        return taken

    def _observe(self, rows: AgentSelection) -> list[Observation]:
        agents, kinds = self._agents[rows], self._kinds[rows]
        return [self._ray_features(agents, self._things[rows], kinds), _agent_features(agents, kinds)]

    @staticmethod
    def _ray_features(agents: Integers, things: Integers, kinds: Integers) -> NDArray[np.float32]:
        """The observations of the rays. Shape [N, 40]."""
        seen = _WALLS[agents]
        rays = _SEEN_BY[agents, things]
        seeing = np.flatnonzero(rays >= 0)
        rays = rays[seeing]
        seen[seeing, rays, WALL] = 0
        seen[seeing, rays, kinds[seeing]] = 1
        seen[seeing, rays, -1] = _FAR[agents[seeing], things[seeing]] / FARTHEST
        return seen.reshape(len(seen), RAYS * RAY_SIZE)

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """Rooms from above: the switch is a green disc, the pyramid a triangle, the brick a golden square."""
        left, top = left + _SIZE // 2, top + _SIZE // 2
        for row, line in enumerate(MAP):
            for column, cell in enumerate(line):
                x, y = left + column * _SIZE, top + row * _SIZE
                fill = (110, 114, 122) if cell == "#" else (255, 255, 255)
                canvas.rectangle((x, y), (x + _SIZE, y + _SIZE), fill=fill, outline=(225, 225, 222))

        def middle(cell: int) -> tuple[float, float]:
            return left + (_COLUMNS[cell] + 0.5) * _SIZE, top + (_ROWS[cell] + 0.5) * _SIZE

        _draw_thing(canvas, middle(int(self._things[copy])), int(self._kinds[copy]), _SIZE / 2)
        canvas.circle(middle(int(self._agents[copy])), _SIZE / 3, fill=(70, 110, 190))


def _draw_thing(canvas: Canvas, middle: tuple[float, float], kind: int, half: float) -> None:
    x, y = middle
    if kind == SWITCH:
        canvas.circle(middle, 0.8 * half, fill=(60, 210, 90))
    elif kind == PYRAMID:
        canvas.polygon([(x - half, y + half), (x + half, y + half), (x, y - half)], (200, 170, 120), INK)
    else:
        canvas.rectangle((x - half / 2, y - half / 2), (x + half / 2, y + half / 2), fill=(250, 200, 40))


def _agent_features(agents: Integers, kinds: Integers) -> NDArray[np.float32]:
    """The agents' places, one-hot, in the half that says whether the switch was pressed. Shape [N, 44]."""
    features = np.zeros((len(agents), 2, _PLACES.shape[1]), np.float32)
    features[np.arange(len(agents)), (kinds != SWITCH).astype(np.int64)] = _PLACES[agents]
    return features.reshape(len(agents), -1)


def _numbered() -> Integers:
    """The number of each cell, row by row from 0, and −1 for walls and cells outside the map. Shape [H + 2, W + 2]."""
    floor = np.pad(np.array([list(line) for line in MAP]) != "#", 1)
    return np.where(floor, floor.cumsum().reshape(floor.shape) - 1, -1)


_NUMBERS = _numbered()
_ROWS, _COLUMNS = (places - 1 for places in np.nonzero(_NUMBERS >= 0))
_USES = np.array([MAP[row][column] for row, column in zip(_ROWS, _COLUMNS, strict=True)])
_SWITCHES = np.flatnonzero(_USES == "w")
_STARTS = np.flatnonzero(_USES == "a")
_PYRAMIDS = np.flatnonzero(_USES == "p")
_PLACES = np.concatenate(
    [np.eye(len(MAP[0]), dtype=np.float32)[_COLUMNS], np.eye(len(MAP), dtype=np.float32)[_ROWS]], axis=1
)
"""Column and row of each cell, one-hot. Shape [C, 22]."""


def _next_cells() -> Integers:
    """The cell that each move leads to from each cell. Shape [C, 5]."""
    reached = _NUMBERS[_ROWS[:, None] + 1 + _ROW_MOVES, _COLUMNS[:, None] + 1 + _COLUMN_MOVES]
    return np.where(reached < 0, np.arange(len(_ROWS))[:, None], reached)


def _sight() -> tuple[NDArray[np.float32], Integers, Integers]:
    """Tables of each cell's rays: views of walls [C, 8, 5]; the ray to another cell, or −1, and its length [C, C]."""
    count = len(_ROWS)
    walls = np.zeros((count, RAYS, RAY_SIZE), np.float32)
    walls[:, :, WALL] = 1
    seen_by, far = np.full((count, count), -1), np.zeros((count, count), np.int64)
    for cell in range(count):
        for ray, (down, right) in enumerate(_RAY_STEPS):
            distance = 1
            row, column = _ROWS[cell] + 1 + down, _COLUMNS[cell] + 1 + right
            while (other := _NUMBERS[row, column]) >= 0:
                seen_by[cell, other], far[cell, other] = ray, distance
                row, column, distance = row + down, column + right, distance + 1
            walls[cell, ray, -1] = distance / FARTHEST
    return walls, seen_by, far


_NEXT = _next_cells()
_WALLS, _SEEN_BY, _FAR = _sight()


@functools.cache
def _distances() -> Floats:
    """The number of moves from each cell to each other. Shape [C, C]."""
    count = len(_ROWS)
    distances = np.where(np.eye(count, dtype=np.bool_), 0.0, np.inf)
    for _ in range(count):
        nearer = 1 + distances[_NEXT].min(axis=1)
        if (nearer >= distances).all():
            break
        distances = np.minimum(distances, nearer)
    return distances
