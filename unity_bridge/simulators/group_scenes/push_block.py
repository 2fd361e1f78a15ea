"""``sim:pushblock``: a team pushes blocks through a gate that opens when an agent dies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats, Integers
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.groups import Groups, StepResults, others_of
from unity_bridge.simulators.group_scenes.push_block_expert import expert_actions
from unity_bridge.simulators.group_scenes.push_block_world import (
    COLUMNS,
    GATE,
    GOAL,
    HEAVY,
    LANES,
    MOVES,
    ROWS,
    PushBlockWorld,
)
from unity_bridge.simulators.rendering.drawing import INK, Canvas, Color
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch

BEHAVIOR = "PushBlockCollab?team=0"
FEWEST = 3
"""Agents that can do it: one to die, two to push the heavy block."""
STEP_REWARD = -0.01
MAX_STEPS = 100
EXPERT_RETURN = 3.82

_SCALE = ROWS - 1
_SIZE = 26
_AGENT: Color = (70, 130, 255)
_BLOCKS: dict[bool, Color] = {False: (230, 170, 90), True: (150, 90, 50)}
_TRAP: Color = (210, 60, 60)


class PushBlock(ArrayScene):
    """C copies of a team that shall push two light blocks and a heavy one to the right side of a room.

    Rules: ``push_block_world``. The heavy block needs two that push at once. The gate opens only when an agent
    steps onto the trap and dies; it leaves before the team has earned anything from it. The dead
    agent's episode terminates, its group plays on, until all blocks are delivered, none is alive (both terminate) or
    ``steps`` (100) decisions are over (which is an interruption). Each episode draws the team size, the blocks, the
    trap, and the starting places of agents in the first column. The team size is between ``agents_per_copy`` and half
    of it, at least 3. With ``respawn`` N, a dead agent is back N decisions later, with a new episode in the same group.

    Observation (14 + 3 A): own row and column; the trap from here (2); whether the gate is open; each block: from here
    (2), whether it is heavy, whether it is there (zeros once it is delivered); each other agent in the order of
    their ids: from here (2), whether it lives (zeros if not). Rows and columns are in units of 6 cells. Action: one
    branch of 5: stay, up, down, left, right. Agents earn nothing on their own. The group gets −0.01 for each decision,
    1 for each light block and 2 for the heavy one: 4 − 0.01 · decisions, which for the expert is 3.82 in the mean
    (18 decisions; up to four agents). A team in which no agent dies ends with −1.

    Statistics, at the end of a group's episode: ``PushBlock/Delivered`` (0 to 3), ``PushBlock/Deaths`` and
    ``PushBlock/TeamSize``.
    """

    frame_s = 0.2
    has_groups = True
    cell = ((COLUMNS + 1) * _SIZE, (ROWS + 1) * _SIZE)
    columns = 3
    shown = 6

    def __init__(
        self,
        copies: int = 6,
        agents_per_copy: int = 4,
        steps: int = MAX_STEPS,
        respawn: int | None = None,
        academy: Academy | None = None,
    ) -> None:
        if agents_per_copy < FEWEST:
            raise ValueError(f"--agents-per-copy: expected {FEWEST} agents or more, got {agents_per_copy}")
        super().__init__(copies, academy)
        self._groups = Groups(copies, agents_per_copy, len(MOVES))
        self._max_steps = steps
        self._respawn = respawn
        self._world = PushBlockWorld(copies, agents_per_copy)
        self._steps = np.zeros(copies, np.int64)
        self._sizes = np.zeros(copies, np.int64)
        self._deaths = np.zeros(copies, np.int64)
        self._dead_for = np.zeros(self._groups.shape, np.int64)
        """Decisions since an agent died that may come back; 0 for all others. Shape [C, A]."""
        self._others = others_of(agents_per_copy)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensor = vector_sensor("observation", 14 + 3 * self._groups.shape[1])
        return {BEHAVIOR: BehaviorSpec((sensor,), ActionSpec(discrete_branches=(len(MOVES),)))}

    def _begin(self) -> Steps:
        self._start(np.ones(len(self._steps), np.bool_))
        results = StepResults(self._observe(), np.zeros(self._groups.shape))
        return {BEHAVIOR: self._groups.decision_batch(results, self._world.alive)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        acting = self._world.alive.copy()
        delivered, died = self._world.advance(self._actions(actions[BEHAVIOR]))
        self._steps += 1
        self._deaths += np.count_nonzero(died, axis=1)
        done = self._world.delivered.all(axis=1) | (np.count_nonzero(self._world.alive, axis=1) == 0)
        over = done | (self._steps >= self._max_steps)
        earned = np.where(acting, (STEP_REWARD + delivered)[:, None], 0.0)
        results = restarted = StepResults(self._observe(), np.zeros_like(earned), earned)
        terminated = died | (done[:, None] & acting)
        truncated = (over & ~done)[:, None] & self._world.alive
        if self._go_on(over, died):
            goes_on = acting & ~over[:, None]
            restarted = StepResults(self._observe(), results.rewards, np.where(goes_on, earned, 0.0))
        return {
            BEHAVIOR: self._groups.step_batch(
                results, restarted, terminated=terminated, truncated=truncated, waiting=self._world.alive
            )
        }

    def expert(self) -> Mapping[str, ActionBatch]:
        return {BEHAVIOR: choices(expert_actions(self._world)[self._world.alive])}

    def _actions(self, batch: ActionBatch) -> Integers:
        actions = np.zeros(self._groups.shape, np.int64)
        actions[self._world.alive] = batch.discrete[:, 0]
        return actions

    def _go_on(self, over: Bools, died: Bools) -> bool:
        """Starts again where it is over, and brings back the dead elsewhere. Returns whether any agent began."""
        back = np.zeros_like(died)
        if self._respawn is not None:
            self._dead_for += died | (self._dead_for > 0)
            back = self._dead_for > self._respawn
            self._world.spawn(back, self._rng)
            self._dead_for[back] = 0
        if over.any():
            self._report(over)
            self._start(over)
        return bool(over.any() or back.any())

    def _start(self, which: Bools) -> None:
        _, agents = self._groups.shape
        count = int(np.count_nonzero(which))
        self._world.draw_rooms(which, self._rng)
        self._steps[which] = 0
        self._deaths[which] = 0
        self._dead_for[which] = 0
        self._sizes[which] = self._rng.integers(max(FEWEST, agents // 2), agents + 1, count)
        # The agents that take part are drawn too, so that no place in the group is always taken.
        order = self._rng.permuted(np.tile(np.arange(agents), (len(self._steps), 1)), axis=1)
        self._world.spawn(which[:, None] & (order < self._sizes[:, None]), self._rng)

    def _report(self, over: Bools) -> None:
        delivered = np.count_nonzero(self._world.delivered[over], axis=1)
        statistics = (
            ("Delivered", delivered),
            ("Deaths", self._deaths[over]),
            ("TeamSize", self._sizes[over]),
        )
        for name, values in statistics:
            for value in values.tolist():
                self._academy.add_statistic(f"PushBlock/{name}", value)

    def _observe(self) -> NDArray[np.float32]:
        """The observations of all agents. Shape [C, A, 14 + 3 A]."""
        (copies, agents), world = self._groups.shape, self._world
        seen = np.zeros((copies, agents, 14 + 3 * agents), np.float32)
        seen[..., 0:2] = world.places / _SCALE
        seen[..., 2:4] = (world.traps[:, None] - world.places) / _SCALE
        seen[..., 4] = world.open[:, None]
        seen[..., 5:17] = self._block_features().reshape(copies, agents, -1)
        seen[..., 17:] = self._other_features().reshape(copies, agents, -1)
        return seen

    def _block_features(self) -> Floats:
        world = self._world
        seen = np.ones((*self._groups.shape, len(LANES), 4))
        seen[..., 0] = (LANES - world.places[..., None, 0]) / _SCALE
        seen[..., 1] = (world.blocks[:, None] - world.places[..., None, 1]) / _SCALE
        seen[..., 2] = (world.weights == HEAVY)[:, None]
        return seen * ~world.delivered[:, None, :, None]

    def _other_features(self) -> Floats:
        world = self._world
        others = world.places[:, self._others] - world.places[:, :, None]
        alive = world.alive[:, self._others][..., None]
        return np.concatenate([others / _SCALE * alive, alive], axis=3)

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A room from above: blocks (the heavy one darker), agents as discs, the trap in red, the goal in green."""
        left, top = left + _SIZE // 2, top + _SIZE // 2

        def cell(row: int, column: int, fill: Color, margin: int = 0) -> None:
            x, y = left + column * _SIZE + margin, top + row * _SIZE + margin
            canvas.rectangle((x, y), (x + _SIZE - 2 * margin, y + _SIZE - 2 * margin), fill=fill)

        world = self._world
        for row in range(ROWS):
            for column in range(COLUMNS):
                cell(row, column, (190, 225, 190) if column == GOAL else (255, 255, 255))
        if not world.open[copy]:
            x = left + (GATE + 1) * _SIZE
            canvas.line((x, top), (x, top + ROWS * _SIZE), color=INK, width=5)
            cell(int(world.traps[copy, 0]), int(world.traps[copy, 1]), _TRAP)
        for block in np.flatnonzero(~world.delivered[copy]).tolist():
            heavy = bool(world.weights[copy, block] == HEAVY)
            cell(int(LANES[block]), int(world.blocks[copy, block]), _BLOCKS[heavy], margin=2)
        for agent in np.flatnonzero(world.alive[copy]).tolist():
            row, column = world.places[copy, agent].tolist()
            # Several may share a cell: each has a place of its own in it.
            x = left + (column + 0.3 + 0.4 * (agent % 2)) * _SIZE
            y = top + (row + 0.3 + 0.4 * (agent // 2 % 2)) * _SIZE
            canvas.circle((x, y), _SIZE / 5, fill=_AGENT)
            self._mark(canvas, copy * self._groups.shape[1] + agent, (x, y), _SIZE / 3.2)
