"""``sim:switch``: agents change sides through a corridor that lets only one way pass at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Integers
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.groups import Groups, StepResults
from unity_bridge.simulators.rendering.drawing import INK, Canvas, Color
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

MAP = ("..###..", ".......", "..###..")
ROWS, COLUMNS = len(MAP), len(MAP[0])
STARTS = ((0, 1), (0, 5), (2, 1), (2, 5))
"""(row, column) of each agent; all four stay on the map, however many agents there are."""
HOMES = ((0, 6), (0, 0), (2, 6), (2, 0))
DOWN, LEFT, UP, RIGHT, STAY = range(5)
MAX_STEPS = 50
STEP_REWARD = -0.1
HOME_REWARD = 5.0
BEST_TEAM_RETURNS = {2: 8.3, 3: 12.4, 4: 16.1}
"""By the number of agents; the optimum, and what the expert gets."""
PLANS = {
    2: ("0333332", "300122111112"),
    3: ("0333332", "44444440111112", "42333330"),
    4: ("0333332", "000201000111112", "02333330", "000000211110100"),
}
"""An optimal sequence of actions for each agent, where all keep to it."""

_MOVES = ((1, 0), (0, -1), (-1, 0), (0, 1), (0, 0))
_SIZE = 36
_COLORS: tuple[Color, ...] = ((70, 130, 255), (230, 120, 60), (90, 170, 90), (180, 110, 200))


class Switch(ArrayScene):
    """C copies of 2 to 4 agents: ma-gym's Switch, step for step. There is no chance in it at all.

        row 0   h1 s0 ## ## ## s1 h0      s and h: where each agent starts, and its home
        row 1   .. .. .. .. .. .. ..      ##: wall
        row 2   h3 s2 ## ## ## s3 h2      unused starts and homes are free cells

    Agents move one after another in the order of their ids; a move off the map, into a wall or onto another agent
    fails. An agent on its own home is done: its episode terminates, and it stays there, in the way of others.
    The group plays on until all are home, or is cut off after ``steps`` (50) decisions. Then all start again.

    Observation: the agent's row/2 and column/6, rounded to two decimals; with ``clock`` also its decisions so
    far, by ``steps``; with ``full_view`` all agents' in the order of their ids. Action: one branch of 5: down,
    left, up, right, stay. Own reward: −0.1 a decision, and +5 instead for the one that leads home. The group gets
    nothing besides, but what counts is the sum over the team: at best 8.30 for two agents (12 decisions), 12.40
    for three (14), 16.10 for four (15). Two agents need not see more than their own place for that.

    Statistic: ``Switch/Home``, the share of a team that came home.
    """

    frame_s = 0.3
    has_groups = True
    cell = ((COLUMNS + 1) * _SIZE, (ROWS + 1) * _SIZE)
    columns = 2
    shown = 4

    def __init__(
        self,
        agents: int,
        copies: int = 16,
        steps: int = MAX_STEPS,
        full_view: bool = False,
        clock: bool = False,
        academy: Academy | None = None,
    ) -> None:
        if agents not in PLANS:
            raise ValueError(f"expected 2, 3 or 4 agents, got {agents}")
        super().__init__(copies, academy)
        self._groups = Groups(copies, agents, len(_MOVES))
        self._behavior = f"Switch{agents}?team=0"
        self._max_steps = steps
        self._full_view = full_view
        self._clock = clock
        self._everywhere = np.arange(copies)
        self._steps = np.zeros(copies, np.int64)
        self._cells = np.zeros((copies, agents), np.int64)
        self._occupied = np.zeros((copies, ROWS * COLUMNS), np.bool_)
        self._home = np.zeros((copies, agents), np.bool_)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        size = (2 + self._clock) * (self._groups.shape[1] if self._full_view else 1)
        actions = ActionSpec(discrete_branches=(len(_MOVES),))
        return {self._behavior: BehaviorSpec((vector_sensor("observation", size),), actions)}

    def _begin(self) -> Steps:
        self._start(np.ones(self._copies, np.bool_))
        return {
            self._behavior: self._groups.decision_batch(
                StepResults(self._observe(), np.zeros(self._groups.shape))
            )
        }

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        acting = ~self._home
        self._move(actions[self._behavior].discrete[:, 0], acting)
        self._steps += 1
        arrived = acting & (self._cells == _HOME_CELLS[: acting.shape[1]])
        self._home |= arrived
        rewards = np.where(arrived, HOME_REWARD, np.where(acting, STEP_REWARD, 0.0))
        over = self._home.all(axis=1) | (self._steps >= self._max_steps)
        results = restarted = StepResults(self._observe(), rewards)
        cut_off = over[:, None] & ~self._home
        if over.any():
            self._report(over)
            self._start(over)
            restarted = StepResults(self._observe(), np.where(over[:, None], 0.0, rewards))
        return {
            self._behavior: self._groups.step_batch(
                results, restarted, terminated=arrived, truncated=cut_off, waiting=~self._home
            )
        }

    def expert(self) -> Mapping[str, ActionBatch]:
        """Keeps to an optimal plan, whatever the others did."""
        agents = self._groups.shape[1]
        planned = _PLANS[agents][np.minimum(self._steps, _LONGEST_PLAN)]
        return {self._behavior: choices(planned[~self._home])}

    def _start(self, which: Bools) -> None:
        starts = _START_CELLS[: self._groups.shape[1]]
        self._steps[which] = 0
        self._home[which] = False
        self._cells[which] = starts
        self._occupied[which] = False
        self._occupied[np.ix_(which, starts)] = True

    def _move(self, chosen: NDArray[np.int32], acting: Bools) -> None:
        moves = np.full(acting.shape, STAY)
        moves[acting] = chosen
        # In the order of their ids: a later one may enter the cell that an earlier one has just left.
        for agent in range(acting.shape[1]):
            here = self._cells[:, agent]
            there = _NEXT[here, moves[:, agent]]
            there = np.where(self._occupied[self._everywhere, there], here, there)
            self._occupied[self._everywhere, here] = False
            self._occupied[self._everywhere, there] = True
            self._cells[:, agent] = there

    def _report(self, over: Bools) -> None:
        for share in self._home[over].mean(axis=1).tolist():
            self._academy.add_statistic("Switch/Home", share)

    def _observe(self) -> NDArray[np.float32]:
        """The observations of all agents. Shape [C, A, size]."""
        copies, agents = self._groups.shape
        seen = _PLACES[self._cells]
        if self._clock:
            clock = np.repeat(self._steps / self._max_steps, agents).reshape(copies, agents, 1)
            seen = np.concatenate([seen, clock.astype(np.float32)], axis=2)
        if self._full_view:
            seen = seen.reshape(copies, 1, -1).repeat(agents, axis=1)
        return seen

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A copy from above: discs are agents, frames of their colors their homes."""
        left, top = left + _SIZE // 2, top + _SIZE // 2
        for row, line in enumerate(MAP):
            for column, kind in enumerate(line):
                x, y = left + column * _SIZE, top + row * _SIZE
                fill = (255, 255, 255) if kind == "." else INK
                canvas.rectangle((x, y), (x + _SIZE, y + _SIZE), fill=fill)
        for agent, cell in enumerate(self._cells[copy].tolist()):
            home_row, home_column = HOMES[agent]
            x, y = left + home_column * _SIZE, top + home_row * _SIZE
            canvas.rectangle((x + 3, y + 3), (x + _SIZE - 3, y + _SIZE - 3), outline=_COLORS[agent])
            canvas.rectangle((x + 5, y + 5), (x + _SIZE - 5, y + _SIZE - 5), outline=_COLORS[agent])
            row, column = divmod(cell, COLUMNS)
            middle = (left + (column + 0.5) * _SIZE, top + (row + 0.5) * _SIZE)
            canvas.circle(middle, _SIZE / 3.5, fill=_COLORS[agent])
            self._mark(canvas, copy * self._groups.shape[1] + agent, middle, _SIZE / 2.2)


def _next_cells() -> Integers:
    """The cell that each action leads to from each cell if the way is free. Shape [cells, 5]."""
    cells = np.arange(ROWS * COLUMNS)
    leads = cells[:, None].repeat(len(_MOVES), axis=1)
    for cell in cells.tolist():
        for action, (down, right) in enumerate(_MOVES):
            row, column = cell // COLUMNS + down, cell % COLUMNS + right
            if 0 <= row < ROWS and 0 <= column < COLUMNS and MAP[row][column] == ".":
                leads[cell, action] = row * COLUMNS + column
    return leads


def _places() -> NDArray[np.float32]:
    """The observation of each cell: row and column, scaled. Shape [cells, 2]."""
    cells = np.arange(ROWS * COLUMNS)
    scaled = np.stack([cells // COLUMNS / (ROWS - 1), cells % COLUMNS / (COLUMNS - 1)], axis=1)
    return np.round(scaled, 2).astype(np.float32)


def _cells(places: tuple[tuple[int, int], ...]) -> Integers:
    return np.array([row * COLUMNS + column for row, column in places])


def _as_steps(plans: tuple[str, ...]) -> Integers:
    """The action of each agent by step, to stay in the end. Shape [longest + 1, A]."""
    return np.array(
        [[int(action) for action in plan.ljust(_LONGEST_PLAN + 1, str(STAY))] for plan in plans]
    ).T


_NEXT = _next_cells()
_PLACES = _places()
_START_CELLS, _HOME_CELLS = _cells(STARTS), _cells(HOMES)
_LONGEST_PLAN = max(len(plan) for plans in PLANS.values() for plan in plans)
_PLANS = {agents: _as_steps(plans) for agents, plans in PLANS.items()}
