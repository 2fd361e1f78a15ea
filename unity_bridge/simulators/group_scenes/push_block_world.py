"""The rules of ``sim:pushblock``: blocks on lanes, a gate, and the trap that opens it."""

from __future__ import annotations

import numpy as np

from unity_bridge.arrays import Bools, Integers

ROWS = COLUMNS = 7
LANES = np.array([1, 3, 5])
"""The row of each block. Blocks never leave their lanes."""
GATE = 4
"""The last column before the gate."""
GOAL = COLUMNS - 1
STAY, UP, DOWN, LEFT, RIGHT = range(5)
LIGHT, HEAVY = 1, 2
"""The number of agents that must push, and the reward for a delivery."""

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
"""(rows, columns) of each action."""
_BETWEEN_LANES = np.array([0, 2, 4, 6])


class PushBlockWorld:
    """C copies of a room of 7 × 7 cells with up to A agents, which may share cells, and three blocks, which are solid.

    A block moves one cell to the right if as many agents as it weighs stand to its left and push (go right), and
    none stands in its way. The pushers follow it. In the last column it is delivered, and gone. Between columns
    4 and 5 is a gate, closed to blocks and agents until an agent steps onto the trap, a cell between two lanes.
    That kills the agent, and uses up the trap.
    """

    def __init__(self, copies: int, agents: int) -> None:
        self.places: Integers = np.zeros((copies, agents, 2), np.int64)
        """(row, column)."""
        self.alive: Bools = np.zeros((copies, agents), np.bool_)
        self.blocks: Integers = np.zeros((copies, len(LANES)), np.int64)
        """The column of each."""
        self.weights: Integers = np.ones((copies, len(LANES)), np.int64)
        self.delivered: Bools = np.zeros((copies, len(LANES)), np.bool_)
        self.traps: Integers = np.zeros((copies, 2), np.int64)
        self.open: Bools = np.zeros(copies, np.bool_)

    def draw_rooms(self, which: Bools, rng: np.random.Generator) -> None:
        """Draws new rooms, without agents. Shape [C]."""
        count = int(np.count_nonzero(which))
        self.alive[which] = False
        self.blocks[which] = rng.integers(2, 4, (count, len(LANES)))
        self.weights[which] = np.where(
            rng.integers(len(LANES), size=count)[:, None] == np.arange(len(LANES)), HEAVY, LIGHT
        )
        self.delivered[which] = False
        self.traps[which, 0] = rng.choice(_BETWEEN_LANES, count)
        self.traps[which, 1] = rng.integers(1, GATE, count)
        self.open[which] = False

    def spawn(self, which: Bools, rng: np.random.Generator) -> None:
        """Lets agents in, anywhere in the first column. Shape [C, A]."""
        count = int(np.count_nonzero(which))
        self.alive[which] = True
        self.places[which] = np.stack([rng.integers(ROWS, size=count), np.zeros(count, np.int64)], axis=1)

    def advance(self, actions: Integers) -> tuple[Integers, Bools]:
        """Makes one step of all agents that are alive.

        Args:
            actions: what they do, shape [C, A]; of the dead anything.

        Returns:
            The weight that each copy delivered, shape [C], and the agents that died, shape [C, A].
        """
        self._push(actions)
        self._walk(actions)
        arrived = (self.blocks == GOAL) & ~self.delivered
        self.delivered |= arrived
        died = self.alive & (self.places == self.traps[:, None]).all(axis=2) & ~self.open[:, None]
        self.alive &= ~died
        self.open |= died.any(axis=1)
        weight: Integers = (arrived * self.weights).sum(axis=1)
        return weight, died

    def _push(self, actions: Integers) -> None:
        rows, columns = self.places[..., None, 0], self.places[..., None, 1]
        in_lane = self.alive[..., None] & (rows == LANES)
        pushing = in_lane & (columns == self.blocks[:, None] - 1) & (actions == RIGHT)[..., None]
        in_the_way = (in_lane & (columns == self.blocks[:, None] + 1)).any(axis=1)
        shut = (self.blocks == GATE) & ~self.open[:, None]
        enough = np.count_nonzero(pushing, axis=1) >= self.weights
        self.blocks += enough & ~in_the_way & ~shut & ~self.delivered

    def _walk(self, actions: Integers) -> None:
        there = np.clip(self.places + MOVES[actions], 0, ROWS - 1)
        solid = (there[..., None, 0] == LANES) & (there[..., None, 1] == self.blocks[:, None])
        stopped = (solid & ~self.delivered[:, None]).any(axis=2)
        gate = (self.places[..., 1] == GATE) & (there[..., 1] == GATE + 1) & ~self.open[:, None]
        walking = self.alive & ~stopped & ~gate
        self.places = np.where(walking[..., None], there, self.places)
