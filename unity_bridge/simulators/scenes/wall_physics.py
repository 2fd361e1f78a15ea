"""Running, jumping and pushing a block to a wall: the physics of ``sim:walljump``, for many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats

FENCE = -9.0
"""Start of the course, in metres from the middle of the wall, as every place here. y is up."""
AGENT_HALF = 0.5
"""Half the agent's width."""
WALL_HALF = 0.5
BLOCK_HALF = 1.5
BLOCK_HEIGHT = 4.0
BLOCK_STOP = -WALL_HALF - BLOCK_HALF
"""A block is pushed no further, even where the wall is flat."""

GRAVITY = 20.0
"""In m/s²."""
RUN_SPEED = 5.0
"""In m/s, as every speed here."""
JUMP_SPEED = 14.0
"""Lifts the feet 4.9 m."""
STEP_S = 0.04
STEPS = 5
"""Physics steps of one advance, which lasts 0.2 s."""

_AT_WALL = WALL_HALF + AGENT_HALF
_AT_BLOCK = BLOCK_HALF + AGENT_HALF


class Courses:
    """N courses seen from the side, each with an agent, a wall at 0 and perhaps a block on its left.

    Agent, block and wall are boxes. An agent on the floor that runs against the block pushes it; from
    above it is a thing to stand on, like the wall. In the air the agent runs as well as on the ground.
    """

    def __init__(self, count: int) -> None:
        self.x = np.full(count, FENCE + AGENT_HALF)
        """Position of the agent's middle. Shape [N], as all of these."""
        self.y = np.zeros(count)
        """Position of its feet."""
        self.rising = np.zeros(count)
        """Its speed upwards."""
        self.grounded = np.ones(count, np.bool_)
        """Whether it stands on something."""
        self.wall = np.zeros(count)
        """Height of the wall."""
        self.block = np.full(count, BLOCK_STOP)
        """The middle of the block."""
        self.has_block = np.zeros(count, np.bool_)

    def place(self, which: Bools, x: Floats, wall: Floats, block: Floats, has_block: Bools) -> None:
        """Sets up the K courses of ``which`` [N]; the others [K]. The agent stands on the floor."""
        self.x[which] = x
        self.y[which] = 0
        self.rising[which] = 0
        self.grounded[which] = True
        self.wall[which] = wall
        self.block[which] = block
        self.has_block[which] = has_block

    def advance(self, run: NDArray[np.integer[Any]], jump: Bools) -> None:
        """Lets 0.2 s pass.

        Args:
            run: −1, 0 or 1, the way to run. Shape [N].
            jump: whether to jump; without effect in the air. Shape [N].
        """
        self.rising[jump & self.grounded] = JUMP_SPEED
        stride = run * (RUN_SPEED * STEP_S)
        for _ in range(STEPS):
            self._run(stride)
            self._fall()

    def _run(self, stride: NDArray[np.floating[Any]]) -> None:
        """Moves along the ground or through the air, up to what stands in the way."""
        x = np.maximum(self.x + stride, FENCE + AGENT_HALF)
        side = np.where(self.block > self.x, 1.0, -1.0)
        meets = self.has_block & (np.abs(self.block - x) < _AT_BLOCK) & (self.y < BLOCK_HEIGHT)
        pushed = np.clip(x + side * _AT_BLOCK, FENCE + BLOCK_HALF, BLOCK_STOP)
        self.block = np.where(meets & (self.y == 0), pushed, self.block)
        x = np.where(meets, self.block - side * _AT_BLOCK, x)
        walled = (np.abs(x) < _AT_WALL) & (self.y < self.wall)
        self.x = np.where(walled, np.copysign(_AT_WALL, self.x), x)

    def _fall(self) -> None:
        below = np.where(np.abs(self.x) < _AT_WALL, self.wall, 0.0)
        on_block = self.has_block & (np.abs(self.block - self.x) < _AT_BLOCK)
        below = np.where(on_block, np.maximum(below, BLOCK_HEIGHT), below)
        self.y += self.rising * STEP_S - GRAVITY * STEP_S**2 / 2
        self.rising -= GRAVITY * STEP_S
        self.grounded = self.y <= below
        self.y = np.maximum(self.y, below)
        self.rising[self.grounded] = 0
