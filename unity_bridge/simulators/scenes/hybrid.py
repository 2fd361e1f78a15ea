"""``sim:hybrid``: drive a trolley, deliver what was ordered: masked branches beside a continuous action."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats
from unity_bridge.simulators.rendering.drawing import INK, Canvas, Color
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

BEHAVIOR = "Hybrid?team=0"
SHELVES = 3
HOLD, GRAB, RELEASE = range(3)

SPEED = 0.25
"""The longest way between two decisions, in half lengths of the rail. A binary fraction: sums are exact."""
GEAR = 0.5
"""Way for an action of 1, were there no limit: half an action is full speed."""
DEPOT = -0.5
"""Crates are grabbed from here to the left end."""
BAY = 0.5
"""And released from here to the right end."""
STEP_REWARD = -0.01
RIGHT_REWARD = 0.5
WRONG_REWARD = -0.1
CRASH_REWARD = -1.0
MAX_DECISIONS = 64
SLOWEST = 3

BEST_RETURN = 13 * RIGHT_REWARD + MAX_DECISIONS * STEP_REWARD
"""Two decisions to the depot, then one for the hook and four for the way, over and over: 5.86."""


class Hybrid(ArrayScene):
    """N trolleys on rails from −1 to 1, with a depot of three shelves on the left and a bay on the right.

    A trolley starts empty in the middle with an order for a crate from one of the shelves. At the depot it
    may grab from a shelf, at the bay it may release what it carries, and a new order comes in.

    Observations: ``order`` (3), the shelf ordered, one-hot; ``trolley`` (2), its place in [−1, 1] and whether
    it carries a crate. Actions: one continuous number in [−1, 1], where to drive, half a unit of rail for 1
    but never more than a quarter; two branches of 3: what the hook does (hold, grab, release), and the shelf
    to grab from. While the hook grabs or releases the trolley stands. Masks: grab is allowed only to an
    empty trolley at the depot, release only to a laden one at the bay; of the shelves, one that was not
    ordered is empty and forbidden, another one at each decision.

    Reward: −0.01 for each decision, +0.5 for the crate that was ordered, −0.1 for another one (it goes back),
    +0.5 for a release at the bay. Driving past the rail's end costs 1 and ends the episode; after 64
    decisions it is interrupted. The best return is 5.86, that of random allowed actions −0.94 (measured).

    Agent i is asked every 1 + i mod 3 steps of the scene and stands still between, so a message seldom holds
    all agents. The end of an episode is sent at once; the next one's first decision is asked in the agent's turn.
    """

    frame_s = 0.15
    cell = (440, 70)
    columns = 1
    shown = 6

    def __init__(self, agents: int = 6) -> None:
        super().__init__(agents)
        self._agent_ids = np.arange(agents, dtype=np.int64)
        self._periods = 1 + self._agent_ids % SLOWEST
        self._tick = 0
        self._waiting = self._agent_ids
        """The agents of the last message's deciding rows, in their order."""
        self._place = np.zeros(agents)
        self._laden = np.zeros(agents, np.bool_)
        self._ordered = np.zeros(agents, np.int64)
        self._empty = np.zeros(agents, np.int64)
        self._decisions = np.zeros(agents, np.int64)
        self._rewards = np.zeros(agents)
        """Each agent's reward since its previous row."""

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensors = (vector_sensor("order", SHELVES), vector_sensor("trolley", 2))
        return {BEHAVIOR: BehaviorSpec(sensors, ActionSpec(1, (3, SHELVES)))}

    def _begin(self) -> Steps:
        self._tick = 0
        self._start(self._agent_ids)
        return {BEHAVIOR: self._ask()}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        batch = actions[BEHAVIOR]
        acting = self._waiting
        works = self._work_the_hook(acting, batch.discrete[:, 0], batch.discrete[:, 1])
        crashed = self._drive(acting, np.where(works, 0.0, batch.continuous[:, 0]))
        self._decisions[acting] += 1
        ended = crashed | (self._decisions[acting] >= MAX_DECISIONS)
        self._tick += 1
        if not ended.any():
            return {BEHAVIOR: self._ask()}
        terminal = self._rows(acting[ended], terminated=crashed[ended], truncated=~crashed[ended])
        self._start(acting[ended])
        return {BEHAVIOR: concatenate(terminal, self._ask())}

    def expert(self) -> Mapping[str, ActionBatch]:
        """Works the hook whenever it may, and drives to where it will be wanted next."""
        agents = self._waiting
        grabs, releases = self._can_grab(agents), self._can_release(agents)
        hook = np.where(grabs, GRAB, np.where(releases, RELEASE, HOLD))
        laden = (self._laden[agents] | grabs) & ~releases
        drive = np.where(laden, 1, -1)[:, None].astype(np.float32)
        branches = np.stack([hook, self._ordered[agents]], axis=1).astype(np.int32)
        return {BEHAVIOR: ActionBatch(drive, branches)}

    def _start(self, agents: NDArray[np.int64]) -> None:
        self._place[agents] = 0
        self._laden[agents] = False
        self._decisions[agents] = 0
        self._rewards[agents] = 0
        self._take_orders(agents)

    def _take_orders(self, agents: NDArray[np.int64]) -> None:
        self._ordered[agents] = self._rng.integers(SHELVES, size=len(agents))

    def _work_the_hook(
        self, agents: NDArray[np.int64], hook: NDArray[np.int32], shelf: NDArray[np.int32]
    ) -> Bools:
        """Works the hooks and returns which of them did. A forbidden choice does nothing, as a mask promises."""
        can_grab, can_release = self._can_grab(agents), self._can_release(agents)
        grabs = (hook == GRAB) & can_grab & (shelf != self._empty[agents])
        right = grabs & (shelf == self._ordered[agents])
        releases = (hook == RELEASE) & can_release
        rewards = STEP_REWARD + RIGHT_REWARD * (right | releases) + WRONG_REWARD * (grabs & ~right)
        self._rewards[agents] += rewards
        self._laden[agents[right]] = True
        self._laden[agents[releases]] = False
        self._take_orders(agents[releases])
        works: Bools = grabs | releases
        return works

    def _drive(self, agents: NDArray[np.int64], action: Floats) -> Bools:
        """Drives, and returns the agents that ran into the rail's end."""
        there = self._place[agents] + np.clip(GEAR * action, -SPEED, SPEED)
        crashed = np.abs(there) > 1
        self._place[agents] = np.clip(there, -1, 1)
        self._rewards[agents[crashed]] += CRASH_REWARD
        return crashed

    def _can_grab(self, agents: NDArray[np.int64]) -> Bools:
        return ~self._laden[agents] & (self._place[agents] <= DEPOT)

    def _can_release(self, agents: NDArray[np.int64]) -> Bools:
        return self._laden[agents] & (self._place[agents] >= BAY)

    def _ask(self) -> StepBatch:
        """The rows of the agents that decide in this step. Agent 0 decides in each."""
        agents = self._waiting = self._agent_ids[self._tick % self._periods == 0]
        other = self._rng.integers(1, SHELVES, size=len(agents))
        self._empty[agents] = (self._ordered[agents] + other) % SHELVES
        return self._rows(agents)

    def _rows(
        self,
        agents: NDArray[np.int64],
        *,
        terminated: Bools | None = None,
        truncated: Bools | None = None,
    ) -> StepBatch:
        batch = step_batch(
            [np.eye(SHELVES, dtype=np.float32)[self._ordered[agents]], self._trolleys(agents)],
            self._rewards[agents].astype(np.float32),
            agent_ids=agents,
            allowed_actions=self._allowed(agents),
            terminated=terminated,
            truncated=truncated,
        )
        self._rewards[agents] = 0
        return batch

    def _trolleys(self, agents: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.stack([self._place[agents], self._laden[agents]], axis=1).astype(np.float32)

    def _allowed(self, agents: NDArray[np.int64]) -> Bools:
        allowed = np.ones((len(agents), 3 + SHELVES), np.bool_)
        allowed[:, GRAB] = self._can_grab(agents)
        allowed[:, RELEASE] = self._can_release(agents)
        allowed[np.arange(len(agents)), 3 + self._empty[agents]] = False
        return allowed

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        crates: list[Color] = [(210, 90, 80), (90, 150, 210), (220, 180, 70)]
        rail, crate = top + 50, crates[self._ordered[copy]]
        canvas.rectangle((20, rail), (120, rail + 8), fill=(225, 225, 225))
        canvas.rectangle((320, rail), (420, rail + 8), fill=(190, 215, 170))
        canvas.line((20, rail), (420, rail), INK)
        x = 220 + 200 * float(self._place[copy])
        canvas.rectangle((x - 14, rail - 10), (x + 14, rail - 2), fill=(150, 150, 155))
        canvas.circle((8, rail - 18), 6, fill=crate)
        if self._laden[copy]:
            canvas.rectangle((x - 8, rail - 26), (x + 8, rail - 11), fill=crate)
