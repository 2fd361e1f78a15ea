"""``sim:basic``: walk a corridor past the small goal to the large one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unity_bridge.simulators.rendering.drawing import Canvas
from unity_bridge.simulators.scene import Steps, choices, vector_sensor
from unity_bridge.simulators.scenes.single_behavior import AgentSelection, SingleBehaviorScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation

BEHAVIOR = "Basic?team=0"
CELLS = 20
START = 10
SMALL_GOAL = 7
LARGE_GOAL = 17
STEP_REWARD = -0.01
SMALL_REWARD = 0.1
LARGE_REWARD = 1.0
MAX_DECISIONS = 200
"""Unity's scene has no such limit, and a policy that stays where it is would never end an episode."""
BEST_RETURN = LARGE_REWARD + (LARGE_GOAL - START) * STEP_REWARD
"""Seven steps to the right: 0.93. (Three to the left: 0.07.)"""

STAY, LEFT, RIGHT = range(3)

_MOVES = np.array([0, -1, 1])
_ONE_HOT = np.eye(CELLS, dtype=np.float32)
_REWARDS = np.full(CELLS, STEP_REWARD)
_REWARDS[SMALL_GOAL] += SMALL_REWARD
_REWARDS[LARGE_GOAL] += LARGE_REWARD
"""By the cell that a decision leads to."""
_IS_GOAL = np.isin(np.arange(CELLS), (SMALL_GOAL, LARGE_GOAL))


class Basic(SingleBehaviorScene):
    """N corridors of 20 cells with an agent each, which starts on cell 10.

    Observation (20): the agent's cell, one-hot. Action: one branch of 3: stay, left, right. Reward: −0.01
    for each decision, +0.1 on cell 7, +1 on cell 17; reaching either ends the episode. After 200 decisions it
    is interrupted.
    """

    behavior = BEHAVIOR
    frame_s = 0.2
    cell = (CELLS * 24 + 1, 48)
    columns = 1

    def __init__(self, agents: int = 1) -> None:
        super().__init__(agents)
        self._cells = np.full(agents, START)
        self._decisions = np.zeros(agents, np.int64)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensor = vector_sensor(f"VectorSensor_size{CELLS}", CELLS)
        return {BEHAVIOR: BehaviorSpec((sensor,), ActionSpec(discrete_branches=(len(_MOVES),)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        moves = _MOVES[actions[BEHAVIOR].discrete[:, 0]]
        self._cells = np.minimum(np.maximum(self._cells + moves, 0), CELLS - 1)
        self._decisions += 1
        arrived = _IS_GOAL[self._cells]
        ended = arrived | (self._decisions >= MAX_DECISIONS)
        return self._next_steps(_REWARDS[self._cells], terminated=arrived, ended=ended)

    def expert(self) -> Mapping[str, ActionBatch]:
        return {BEHAVIOR: choices(np.full(len(self._cells), RIGHT))}

    def _start(self, which: AgentSelection) -> None:
        """Puts agents on the start; there is no chance in it, so the seed makes no difference."""
        self._cells[which] = START
        self._decisions[which] = 0

    def _observe(self, rows: AgentSelection) -> list[Observation]:
        return [_ONE_HOT[self._cells[rows]]]

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        colors = {SMALL_GOAL: (200, 220, 170), LARGE_GOAL: (110, 180, 90)}
        for i in range(CELLS):
            fill = colors.get(i, (255, 255, 255))
            canvas.rectangle((i * 24, top + 12), ((i + 1) * 24, top + 36), fill=fill)
        canvas.circle((int(self._cells[copy]) * 24 + 12, top + 24), 8, fill=(70, 110, 190))
