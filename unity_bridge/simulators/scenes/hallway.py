"""``sim:hallway``: remember the symbol at the start, and choose its goal at the end of a hallway."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Integers
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.rendering.drawing import INK, Canvas, Color
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.single_behavior import AgentSelection, SingleBehaviorScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation

BEHAVIOR = "Hallway?team=0"
PARAMETERS = {"hallway_length": 9.0}
"""Environment parameters and their defaults."""
SHORTEST, LONGEST = 2, 20
STAY, FORWARD, BACK, LEFT, RIGHT = range(5)
CIRCLE, EX = range(2)
WALL, CIRCLE_SYMBOL, EX_SYMBOL, CIRCLE_GOAL, EX_GOAL = range(5)
"""Kinds of things that a ray can hit."""
RAYS = 5
RAY_SIZE = 6
FARTHEST = LONGEST + 1
STEP_REWARD = -0.01
RIGHT_REWARD = 1.0
WRONG_REWARD = -0.1
MAX_DECISIONS = 120
BEST_RETURN = 0.90
"""Nine cells forward and one aside, to the right goal."""
BEST_RETURN_WITHOUT_MEMORY = 0.35
"""The mean return of a guess, ten decisions away: 0.45 for the goals, less 0.1 for the way."""

_AHEAD = 2
"""The ray that looks along the hallway."""
_MOVES = np.array([0, 1, -1, 0, 0])
_SIDES = np.array([0, 0, 0, -1, 1])
_COLORS: tuple[Color, Color] = ((70, 130, 255), (230, 120, 60))
_SIZE = 18


class Hallway(SingleBehaviorScene):
    """N hallways one cell wide, with an agent each, which starts beside a symbol that only its first cell shows.

    The symbol is a circle or an ex. After ``hallway_length`` cells the hallway ends between two goals, one to the left
    and one to the right, and one of them has the symbol. ``hallway_length`` is an environment parameter from 2 to 20,
    read at the start of each episode. Symbol and sides are drawn for each episode. The agent's actions leave no trace:
    it always faces down the hallway, has no clock, and each path to the goals leads through cells that look the
    same with either symbol. So an agent without memory guesses, with a mean return of 0.35 at most.

    Observation (30): ``RayPerceptionSensor``, five rays from left over ahead to right. Each ray has a one-hot for the
    hit object (wall, circle, ex, goal of the circle, goal of the ex) and its distance in units of 21 cells. Action: one
    branch of 5: stay, forward, back, left, right; an agent that bumps into a wall stays. Reward: −0.01 for each
    decision, +1 at the goal of the symbol, −0.1 at the other; either ends the episode. After 120 decisions it is
    interrupted. The best return is 1 − 0.01 · (length + 1), 0.90 for a length of 9.

    Statistics: ``Goal/Correct`` and ``Goal/Wrong``, how many were reached.
    """

    behavior = BEHAVIOR
    frame_s = 0.2
    cell = ((LONGEST + 2) * _SIZE, 4 * _SIZE)
    columns = 2

    def __init__(self, agents: int = 16, academy: Academy | None = None) -> None:
        super().__init__(agents, academy)
        self._lengths = np.zeros(agents, np.int64)
        self._symbols = np.zeros(agents, np.int64)
        self._left_goals = np.zeros(agents, np.int64)
        """The goal that is to the left: the circle's or the ex's."""
        self._cells = np.zeros(agents, np.int64)
        """Distance from the start, in cells."""
        self._sides = np.zeros(agents, np.int64)
        """−1 at the left goal, 1 at the right one, 0 in the hallway."""
        self._decisions = np.zeros(agents, np.int64)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensor = vector_sensor("RayPerceptionSensor", RAYS * RAY_SIZE)
        return {BEHAVIOR: BehaviorSpec((sensor,), ActionSpec(discrete_branches=(len(_MOVES),)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._move(actions[BEHAVIOR].discrete[:, 0])
        arrived = self._sides != 0
        right = arrived & (self._sides == self._right_sides())
        wrong = arrived & ~right
        rewards = STEP_REWARD + RIGHT_REWARD * right + WRONG_REWARD * wrong
        self._count("Goal/Correct", right)
        self._count("Goal/Wrong", wrong)
        ended = arrived | (self._decisions >= MAX_DECISIONS)
        return self._next_steps(rewards, terminated=arrived, ended=ended)

    def expert(self) -> Mapping[str, ActionBatch]:
        at_the_goals = self._cells == self._lengths
        aside = np.where(self._right_sides() < 0, LEFT, RIGHT)
        return {BEHAVIOR: choices(np.where(at_the_goals, aside, FORWARD))}

    def _start(self, which: AgentSelection) -> None:
        count = self._num(which)
        asked = self._academy.parameters.read("hallway_length", PARAMETERS["hallway_length"], count)
        self._lengths[which] = np.clip(asked, SHORTEST, LONGEST)
        self._symbols[which], self._left_goals[which] = self._rng.integers(2, size=(2, count))
        self._cells[which] = 0
        self._sides[which] = 0
        self._decisions[which] = 0

    def _move(self, chosen: NDArray[np.int32]) -> None:
        self._sides = _SIDES[chosen] * (self._cells == self._lengths)
        self._cells = np.clip(self._cells + _MOVES[chosen], 0, self._lengths)
        self._decisions += 1

    def _right_sides(self) -> Integers:
        return np.where(self._left_goals == self._symbols, -1, 1)

    def _observe(self, rows: AgentSelection) -> list[Observation]:
        cells, sides = self._cells[rows], self._sides[rows]
        left = self._lengths[rows] - cells
        places = np.minimum(left, _INSIDE)
        places[cells == 0] = _FIRST
        places = np.where(sides == 0, places, np.where(sides < 0, _LEFT_GOAL, _RIGHT_GOAL))
        seen = _VIEWS[places, self._symbols[rows], self._left_goals[rows]]
        seen[:, _AHEAD, -1] = (left + 1) / FARTHEST
        return [seen.reshape(len(seen), RAYS * RAY_SIZE)]

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A hallway from above, its start to the left; symbols and goals are blue (circle) or orange (ex)."""
        left, top = left + _SIZE // 2, top + _SIZE // 2

        def cell(column: int, row: int, fill: Color) -> None:
            x, y = left + column * _SIZE, top + row * _SIZE
            canvas.rectangle((x, y), (x + _SIZE, y + _SIZE), fill=fill)

        length, left_goal = int(self._lengths[copy]), int(self._left_goals[copy])
        for column in range(length + 1):
            cell(column, 1, (255, 255, 255))
        cell(0, 0, _COLORS[int(self._symbols[copy])])
        cell(length, 0, _COLORS[left_goal])
        cell(length, 2, _COLORS[1 - left_goal])
        middle = (left + (int(self._cells[copy]) + 0.5) * _SIZE, top + 1.5 * _SIZE)
        canvas.circle(middle, _SIZE / 3, fill=INK)


_JUNCTION, _BEFORE, _INSIDE, _FIRST, _LEFT_GOAL, _RIGHT_GOAL = range(6)
"""Places that rays tell apart; the first three are 0, 1 and 2 or more cells away from the junction."""


def _views() -> NDArray[np.float32]:
    """Views of the rays by place, symbol and left goal, without the distance ahead. Shape [6, 2, 2, 5, 6]."""
    views = np.zeros((6, 2, 2, RAYS, RAY_SIZE), np.float32)
    for symbol in (CIRCLE, EX):
        for left_goal in (CIRCLE, EX):
            sign, left, right = CIRCLE_SYMBOL + symbol, CIRCLE_GOAL + left_goal, EX_GOAL - left_goal
            hits = {
                _JUNCTION: (left, WALL, WALL, WALL, right),
                _BEFORE: (WALL, left, WALL, right, WALL),
                _INSIDE: (WALL,) * RAYS,
                _FIRST: (sign, WALL, WALL, WALL, sign),
                _LEFT_GOAL: (WALL, WALL, WALL, WALL, right),
                _RIGHT_GOAL: (left, WALL, WALL, WALL, WALL),
            }
            for place, hit in hits.items():
                views[place, symbol, left_goal, np.arange(RAYS), hit] = 1
    views[..., -1] = 1 / FARTHEST
    views[_LEFT_GOAL, ..., -1, -1] = views[_RIGHT_GOAL, ..., 0, -1] = 2 / FARTHEST
    return views


_VIEWS = _views()
