"""``sim:gridworld``: look at a board through a camera and walk to the goal that is asked for."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Integers
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.rendering.drawing import Canvas, Color
from unity_bridge.simulators.scene import (
    Steps,
    camera_sensor,
    choices,
    vector_sensor,
)
from unity_bridge.simulators.scenes.grid_camera import (
    EX_COLOR,
    PIXELS,
    PLUS_COLOR,
    SIDE,
    BoardCamera,
    PictureFormat,
)
from unity_bridge.simulators.scenes.single_behavior import AgentSelection, SingleBehaviorScene
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationType
from unity_bridge.steps import ActionBatch, Observation

BEHAVIOR = "GridWorld?team=0"
PARAMETERS = {"gridSize": float(SIDE)}
"""Environment parameters and their defaults."""
SMALLEST_GRID = 2
PLUS, EX = range(2)
STAY, UP, DOWN, LEFT, RIGHT = range(5)
STEP_REWARD = -0.01
RIGHT_REWARD = 1.0
WRONG_REWARD = -1.0
MAX_DECISIONS = 100
BEST_MEAN_RETURN = 0.9664
"""The mean return of the shortest ways around the wrong goal, over all boards."""

_ROW_MOVES = np.array([0, -1, 1, 0, 0])
_COLUMN_MOVES = np.array([0, 0, 0, -1, 1])
_COLORS: tuple[Color, Color] = (PLUS_COLOR, EX_COLOR)
_WHITE: Color = (255, 255, 255)
_FRAME = 6
"""Pixels around a board in the picture."""


class GridWorld(SingleBehaviorScene):
    """N boards of 5 by 5 cells; on three of them are an agent, a green plus and a red ex.

    ``gridSize`` is the number of used cells along each side, from the corner at the top left. The other cells stay
    empty, and agents cannot enter them. It is an environment parameter from 2 to 5, read at the start of each episode.

    Observations: ``CameraSensor`` (3, 84, 84), the board from above, as PNG or as floats; ``GoalSensor``
    (2), a goal signal: which of the two shall be reached, plus or ex, one-hot. Action: one branch of 5:
    stay, up, down, left, right. Moves into the wall are masked. Reward: −0.01 for each decision, +1 on the
    right goal, −1 on the wrong one; reaching either ends the episode. After 100 decisions it is
    interrupted. Where everything is, and what is asked for, is drawn again for each episode, so the best
    return varies: 1 − 0.01 for each cell of the way, 0.9664 in the mean.

    Statistics: ``Goal/Right`` and ``Goal/Wrong``, how many were reached.
    """

    behavior = BEHAVIOR
    frame_s = 0.2
    cell = (PIXELS + 2 * _FRAME, PIXELS + 2 * _FRAME)
    columns = 3
    shown = 9

    def __init__(
        self, agents: int = 9, academy: Academy | None = None, pictures: PictureFormat = "png"
    ) -> None:
        super().__init__(agents, academy)
        self._camera = BoardCamera(pictures)
        self._goals = np.zeros((2, agents), np.int64)
        """Cells of the plus and of the ex, row by row from 0. Shape [2, N]."""
        self._agents = np.zeros(agents, np.int64)
        self._wanted = np.zeros(agents, np.int64)
        self._decisions = np.zeros(agents, np.int64)
        self._sizes = np.full(agents, SIDE)
        """Cells along each side that are used."""

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensors = (
            camera_sensor("CameraSensor", PIXELS, PIXELS),
            vector_sensor("GoalSensor", 2, ObservationType.GOAL_SIGNAL),
        )
        return {BEHAVIOR: BehaviorSpec(sensors, ActionSpec(discrete_branches=(len(_ROW_MOVES),)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._move(actions[BEHAVIOR].discrete[:, 0])
        reached = self._goals == self._agents
        arrived = reached.any(axis=0)
        right = reached[self._wanted, self._agent_ids]
        wrong = arrived & ~right
        rewards = STEP_REWARD + RIGHT_REWARD * right + WRONG_REWARD * wrong
        self._count("Goal/Right", right)
        self._count("Goal/Wrong", wrong)
        ended = arrived | (self._decisions >= MAX_DECISIONS)
        return self._next_steps(rewards, terminated=arrived, ended=ended)

    def expert(self) -> Mapping[str, ActionBatch]:
        """Goes a shortest way around the wrong goal."""
        right_goals, wrong_goals = (
            self._goals[self._wanted, self._agent_ids],
            self._goals[1 - self._wanted, self._agent_ids],
        )
        there = _NEXT[self._sizes, self._agents]
        distances = _distances()[self._sizes[:, None], right_goals[:, None], wrong_goals[:, None], there]
        return {BEHAVIOR: choices(distances.argmin(axis=1))}

    def _start(self, which: AgentSelection) -> None:
        count = self._num(which)
        asked = self._academy.parameters.read("gridSize", PARAMETERS["gridSize"], count)
        sizes = np.clip(asked, SMALLEST_GRID, SIDE).astype(np.int64)
        # Unused cells sort behind all others.
        order = (self._rng.random((SIDE * SIDE, count)) + _unused(sizes)).argsort(axis=0)
        self._sizes[which] = sizes
        self._agents[which] = order[0]
        self._goals[:, which] = order[1:3]
        self._wanted[which] = self._rng.integers(2, size=count)
        self._decisions[which] = 0

    def _move(self, chosen: NDArray[np.int32]) -> None:
        """A forbidden move does nothing, as a mask promises."""
        self._agents = _NEXT[self._sizes, self._agents, chosen]
        self._decisions += 1

    def _observe(self, rows: AgentSelection) -> list[Observation]:
        boards = self._camera.observe((*self._goals[:, rows], self._agents[rows]))
        return [boards, np.eye(2, dtype=np.float32)[self._wanted[rows]]]

    def _allowed_actions(self, rows: AgentSelection) -> Bools:
        allowed: Bools = _ALLOWED[self._sizes[rows], self._agents[rows]]
        return allowed

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """Draws a board, in a frame of the goal's colour."""
        frame, end, color = _FRAME, PIXELS + 2 * _FRAME - 1, _COLORS[int(self._wanted[copy])]
        canvas.rectangle((left, top), (left + end, top + end), fill=_WHITE, outline=_WHITE)
        canvas.rectangle((left + 2, top + 2), (left + end - 2, top + end - 2), fill=color, outline=color)
        (seen,) = BoardCamera("png").observe((*self._goals[:, copy, None], self._agents[copy, None]))
        canvas.paste(seen.transpose(1, 2, 0), left + frame, top + frame)


def _moves(size: int) -> tuple[Integers, Bools]:
    """The cell that each move leads to from each cell, and whether it is allowed. Shapes [25, 5]."""
    rows, columns = np.divmod(np.arange(SIDE * SIDE)[:, None], SIDE)
    rows, columns = rows + _ROW_MOVES, columns + _COLUMN_MOVES
    inside: Bools = (rows >= 0) & (rows < size) & (columns >= 0) & (columns < size)
    return rows.clip(0, size - 1) * SIDE + columns.clip(0, size - 1), inside


_NEXT, _ALLOWED = (np.stack(tables) for tables in zip(*map(_moves, range(SIDE + 1)), strict=True))
"""The tables of ``_moves`` for boards of 0 to 5 cells along a side. Shapes [6, 25, 5]."""


def _unused(sizes: Integers) -> Bools:
    """The cells that lie outside of boards of these sizes. Shape [N] to [25, N]."""
    rows, columns = np.divmod(np.arange(SIDE * SIDE)[:, None], SIDE)
    return np.maximum(rows, columns) >= sizes


@functools.cache
def _distances() -> NDArray[np.float64]:
    """The number of moves to a goal around another cell, from each cell. Shape [size, goal, other, cell]."""
    return np.stack([_distances_on(moves) for moves in _NEXT])


def _distances_on(moves: Integers) -> NDArray[np.float64]:
    cells = np.arange(SIDE * SIDE)
    distances = np.full((len(cells),) * 3, np.inf)
    distances[cells, :, cells] = 0
    blocked = np.broadcast_to(cells[:, None] == cells, distances.shape)
    for _ in cells:  # nothing is further away than that
        distances = np.minimum(distances, np.where(blocked, np.inf, 1 + distances[:, :, moves].min(axis=3)))
    return distances
