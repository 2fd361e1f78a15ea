"""``sim:walljump``: get over a wall, with the help of a block where it is too high to jump."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.rendering.drawing import Canvas, Color
from unity_bridge.simulators.scene import Steps, choices, concatenate, step_batch, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.simulators.scenes.wall_physics import (
    AGENT_HALF,
    BLOCK_HALF,
    BLOCK_HEIGHT,
    BLOCK_STOP,
    FENCE,
    JUMP_SPEED,
    STEP_S,
    STEPS,
    WALL_HALF,
    Courses,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

SMALL = "SmallWallJump?team=0"
BIG = "BigWallJump?team=0"
PARAMETERS = {"small_wall_height": 4.0, "big_wall_height": 8.0}
"""Environment parameters and their defaults."""

START = (-8.0, -7.0)
"""Start positions of agents, in metres from the wall, as every length here."""
BLOCK_START = (-5.0, BLOCK_STOP)
GOAL = 4.0
HIGHEST = 9.0
"""The scale of heights and places as they are observed."""
STEP_REWARD = -0.005
GOAL_REWARD = 1.0
MAX_DECISIONS = 120
STAND, LEFT, RIGHT = range(3)

_DIRECTIONS = np.array([0, -1, 1])
_SENSOR = vector_sensor("VectorSensor_size8", 8)


class WallJump(ArrayScene):
    """N courses with an agent each, which starts 7 to 8 m before a wall and shall get 4 m behind it.

    A small wall (behavior ``SmallWallJump``) is ``small_wall_height`` high and can be jumped up to 4.8 m.
    Before a big one (``BigWallJump``), ``big_wall_height`` high, a block of 4 m lies in the way. Pushed to
    the wall it is a step, from which walls up to 8.8 m can be jumped. Which of the two it is, is drawn for
    each episode: an agent keeps its id and changes its behavior. Heights are environment parameters,
    read at the start of each episode.

    Observation (8): the agent's place, the height of its feet (both / 9 m) and its speed upwards
    (/ 14 m/s); whether it stands on something; the wall's height / 9 m; whether there is a block, its place
    and its place seen from the agent (both / 9 m). Actions: branches of 3 (stand, run left, run right) and
    2 (nothing, jump, masked in the air), for 0.2 s each. Reward: −0.005 for each decision, +1 at the goal,
    which ends the episode. After 120 decisions it is interrupted. The best return is 0.94 for walls that
    can be jumped from the floor: 12 decisions of running; and 0.935 to 0.94 for 8 m.

    Statistics: ``Wall/Height`` at the start of each episode, ``Goal/Reached`` (0 or 1) at its end.
    """

    frame_s = STEPS * STEP_S
    cell = (190, 130)
    columns = 2

    def __init__(self, agents: int = 16, academy: Academy | None = None) -> None:
        super().__init__(agents, academy)
        self._agent_ids = np.arange(agents, dtype=np.int64)
        self._courses = Courses(agents)
        self._big = np.zeros(agents, np.bool_)
        """The agents before a big wall, in the episode at hand."""
        self._decisions = np.zeros(agents, np.int64)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        spec = BehaviorSpec((_SENSOR,), ActionSpec(discrete_branches=(len(_DIRECTIONS), 2)))
        return {SMALL: spec, BIG: spec}

    def _begin(self) -> Steps:
        all_agents = np.ones(len(self._agent_ids), np.bool_)
        self._start(all_agents)
        rewards = np.zeros(len(self._agent_ids))
        return {behavior: self._rows(self._of(behavior), rewards) for behavior in (SMALL, BIG)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        chosen = np.zeros((len(self._agent_ids), 2), np.int32)
        for behavior, batch in actions.items():
            chosen[self._of(behavior)] = batch.discrete
        self._courses.advance(_DIRECTIONS[chosen[:, 0]], chosen[:, 1] == 1)
        self._decisions += 1
        arrived = self._courses.x >= GOAL
        rewards = STEP_REWARD + GOAL_REWARD * arrived
        ended = arrived | (self._decisions >= MAX_DECISIONS)
        if not ended.any():
            return {behavior: self._rows(self._of(behavior), rewards) for behavior in (SMALL, BIG)}
        terminal = {
            behavior: self._rows(ended & self._of(behavior), rewards, arrived) for behavior in (SMALL, BIG)
        }
        self._report(arrived[ended])
        self._start(ended)
        rewards[ended] = 0
        return {
            behavior: concatenate(terminal[behavior], self._rows(self._of(behavior), rewards))
            for behavior in (SMALL, BIG)
        }

    def expert(self) -> Mapping[str, ActionBatch]:
        """Runs; pushes the block to the wall and jumps onto it, where there is one, and over the wall from there."""
        courses = self._courses
        hurdle = (courses.x >= -4) & (courses.x < -2.9)
        pushed = np.abs(courses.block - BLOCK_STOP) < 1e-4
        climb = np.where(courses.y > BLOCK_HEIGHT - 0.1, courses.x > -2, pushed & (courses.x < 0))
        jump = np.where(courses.has_block, climb, hurdle) & courses.grounded
        chosen = np.stack([np.full(len(jump), RIGHT), jump], axis=1)
        return {behavior: choices(chosen[self._of(behavior)]) for behavior in (SMALL, BIG)}

    def _of(self, behavior: str) -> Bools:
        """The agents of a behavior, in the episodes at hand."""
        return self._big if behavior == BIG else ~self._big

    def _start(self, which: Bools) -> None:
        count = int(np.count_nonzero(which))
        big = self._rng.random(count) < 0.5
        walls = np.where(big, 0.0, self._heights("small_wall_height", count))
        walls[big] = self._heights("big_wall_height", int(np.count_nonzero(big)))
        self._big[which] = big
        self._decisions[which] = 0
        x, block = self._rng.uniform(*START, count), self._rng.uniform(*BLOCK_START, count)
        self._courses.place(which, x, walls, block, big)
        for height in walls.tolist():
            self._academy.add_statistic("Wall/Height", height)

    def _heights(self, parameter: str, count: int) -> Floats:
        """Draws heights of walls; a wall is no pit, whatever a sampler draws. Shape [count]."""
        return self._academy.parameters.read(parameter, PARAMETERS[parameter], count).clip(min=0)

    def _report(self, arrived: Bools) -> None:
        for each in arrived.tolist():
            self._academy.add_statistic("Goal/Reached", float(each))

    def _rows(
        self, which: Bools, rewards: NDArray[np.floating[Any]], arrived: Bools | None = None
    ) -> StepBatch:
        """Returns the rows of the agents ``which`` [N]: terminal rows if ``arrived`` [N] is given, else decisions."""
        grounded = self._courses.grounded[which]
        allowed = np.ones((len(grounded), len(_DIRECTIONS) + 2), np.bool_)
        allowed[:, -1] = grounded
        return step_batch(
            [self._observe(which)],
            rewards[which].astype(np.float32),
            agent_ids=self._agent_ids[which],
            allowed_actions=allowed,
            terminated=None if arrived is None else arrived[which],
            truncated=None if arrived is None else ~arrived[which],
        )

    def _observe(self, which: Bools) -> NDArray[np.float32]:
        courses = self._courses
        place = courses.block * courses.has_block
        seen = (
            courses.x / HIGHEST,
            courses.y / HIGHEST,
            courses.rising / JUMP_SPEED,
            courses.grounded,
            courses.wall / HIGHEST,
            courses.has_block,
            place / HIGHEST,
            (place - courses.x) * courses.has_block / HIGHEST,
        )
        return np.stack(seen, axis=1)[which].astype(np.float32)

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """One course, its floor at y and the middle of its wall at x, 10 pixels for each metre."""
        courses, x, y = self._courses, left + 100, top + 120

        def box(middle: float, half: float, bottom: float, height: float, fill: Color) -> None:
            start, end = x + 10 * (middle - half), x + 10 * (middle + half)
            canvas.rectangle((start, y - 10 * (bottom + height)), (end, y - 10 * bottom), fill=fill)

        canvas.line((x + 10 * FENCE, y), (x + 10 * GOAL, y))
        box(GOAL + 2, 2, 0, 0.2, (110, 180, 90))
        box(0, WALL_HALF, 0, float(courses.wall[copy]), (150, 150, 155))
        if courses.has_block[copy]:
            box(float(courses.block[copy]), BLOCK_HALF, 0, BLOCK_HEIGHT, (220, 180, 70))
        box(float(courses.x[copy]), AGENT_HALF, float(courses.y[copy]), 2 * AGENT_HALF, (70, 110, 190))
