"""``sim:sorter``: visit numbered tiles in ascending order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Integers
from unity_bridge.side_channels import Aggregation
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.rendering.drawing import PAPER, Canvas
from unity_bridge.simulators.scene import (
    Steps,
    choices,
    entity_sensor,
    vector_sensor,
)
from unity_bridge.simulators.scenes.single_behavior import AgentSelection, SingleBehaviorScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation

BEHAVIOR = "Sorter?team=0"
PARAMETERS = {"num_tiles": 4.0}
"""Environment parameters and their defaults."""
FEWEST_TILES = 2
MOST_TILES = 20
TILE_SIZE = 4
CLOCKWISE, COUNTERCLOCKWISE, TOUCH = range(3)
STEP_REWARD = -0.01
RIGHT_REWARD = 1.0
WRONG_REWARD = -1.0
PATIENCE = 30
"""The number of decisions without a right tile that interrupts an episode."""

_TURNS = np.array([1, -1, 0])


class Sorter(SingleBehaviorScene):
    """N circles of tiles with numbers on them, and an agent that walks from tile to tile.

    A circle has ``num_tiles`` places and as many tiles, at random places, with different numbers from 1 to 20.
    ``num_tiles`` is an environment parameter from 2 to 20, read at the start of each episode. The agent starts
    at place 0.

    Observations: ``Tiles`` (20, 4), variable length, a row for each tile in an order drawn again for each
    episode: its number / 20, the sine and cosine of the angle from the agent to it (clockwise), and whether
    it was touched; ``VectorSensor_size2``: the share of the tiles that were touched, and the share of the
    patience that is left. Action: one branch of 3: one place clockwise, one back, touch the tile that is
    here. To touch a tile again is masked. Reward: −0.01 for each decision, +1 for touching the smallest
    number that is left; the last one ends the episode. Touching another costs 1 and ends it, too. After 30
    decisions without a right tile it is interrupted. The best return is that of the shorter way to each
    next tile: less than num_tiles by 0.01 for each touch and for each place walked, which is about 1 +
    num_tiles / 4 for each tile.

    Statistics: ``Tiles/Number`` (the most recent), ``Tiles/Touched`` at the end of each episode (a
    histogram).
    """

    behavior = BEHAVIOR
    frame_s = 0.2
    cell = (140, 140)

    def __init__(self, agents: int = 16, academy: Academy | None = None) -> None:
        super().__init__(agents, academy)
        self._tiles = np.full(agents, FEWEST_TILES)
        """Number of tiles, on as many places."""
        self._numbers = np.zeros((agents, MOST_TILES), np.int64)
        """On the tiles in the order of the sensor's rows; 0 where there is none. Shape [N, 20]."""
        self._places = np.zeros((agents, MOST_TILES), np.int64)
        self._touched = np.zeros((agents, MOST_TILES), np.bool_)
        self._here = np.zeros(agents, np.int64)
        self._patience = np.full(agents, PATIENCE)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        sensors = (entity_sensor("Tiles", MOST_TILES, TILE_SIZE), vector_sensor("VectorSensor_size2", 2))
        return {BEHAVIOR: BehaviorSpec(sensors, ActionSpec(discrete_branches=(len(_TURNS),)))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        chosen = actions[BEHAVIOR].discrete[:, 0]
        self._here = (self._here + _TURNS[chosen]) % self._tiles
        self._patience -= 1
        right, wrong = self._touch(chosen == TOUCH)
        rewards = STEP_REWARD + RIGHT_REWARD * right + WRONG_REWARD * wrong
        terminated = wrong | (right & (self._touched.sum(axis=1) == self._tiles))
        ended = terminated | (self._patience <= 0)
        self._report(ended)
        return self._next_steps(rewards, terminated=terminated, ended=ended)

    def expert(self) -> Mapping[str, ActionBatch]:
        """Goes the shorter way to the tile that is next, and touches it."""
        away = (self._places[self._agent_ids, self._next_tiles()] - self._here) % self._tiles
        turn = np.where(2 * away <= self._tiles, CLOCKWISE, COUNTERCLOCKWISE)
        return {BEHAVIOR: choices(np.where(away == 0, TOUCH, turn))}

    def _start(self, which: AgentSelection) -> None:
        count = self._num(which)
        asked = self._academy.parameters.read("num_tiles", PARAMETERS["num_tiles"], count)
        tiles = np.clip(asked, FEWEST_TILES, MOST_TILES).astype(np.int64)
        unused = np.arange(MOST_TILES) >= tiles[:, None]
        numbers = 1 + self._rng.random((count, MOST_TILES)).argsort(axis=1)
        # Unused places sort behind all others.
        places = (self._rng.random((count, MOST_TILES)) + unused).argsort(axis=1)
        self._tiles[which] = tiles
        self._numbers[which] = np.where(unused, 0, numbers)
        self._places[which] = places
        self._touched[which] = False
        self._here[which] = 0
        self._patience[which] = PATIENCE
        self._academy.add_statistic("Tiles/Number", float(tiles[-1]), Aggregation.MOST_RECENT)

    def _touch(self, touching: Bools) -> tuple[Bools, Bools]:
        """Touches tiles. Returns the agents that touched the next tile, and the agents that touched a wrong one.

        Touching a tile again does nothing, as a mask promises.
        """
        touches = self._untouched_here() & touching[:, None]
        right = touches[self._agent_ids, self._next_tiles()]
        wrong = touches.any(axis=1) & ~right
        self._touched |= touches
        self._patience[right] = PATIENCE
        return right, wrong

    def _next_tiles(self) -> Integers:
        """The row of each agent's smallest number that is left. Shape [N]."""
        left = np.where((self._numbers > 0) & ~self._touched, self._numbers, MOST_TILES + 1)
        rows: Integers = left.argmin(axis=1)
        return rows

    def _untouched_here(self) -> Bools:
        """True for the tile below each agent that may be touched. Shape [N, 20]."""
        below: Bools = (self._places == self._here[:, None]) & (self._numbers > 0) & ~self._touched
        return below

    def _report(self, ended: Bools) -> None:
        for touched in self._touched[ended].sum(axis=1).tolist():
            self._academy.add_statistic("Tiles/Touched", touched, Aggregation.HISTOGRAM)

    def _observe(self, rows: AgentSelection) -> list[Observation]:
        return [self._tile_features(rows), self._agent_features(rows)]

    def _allowed_actions(self, rows: AgentSelection) -> Bools:
        allowed = np.ones((self._num(rows), len(_TURNS)), np.bool_)
        allowed[:, TOUCH] = self._untouched_here()[rows].any(axis=1)
        return allowed

    def _tile_features(self, rows: AgentSelection) -> NDArray[np.float32]:
        numbers = self._numbers[rows]
        steps = self._places[rows] - self._here[rows, None]
        angles = 2 * np.pi * steps / self._tiles[rows, None]
        seen = np.stack([numbers / MOST_TILES, np.sin(angles), np.cos(angles), self._touched[rows]], axis=2)
        seen[numbers == 0] = 0
        return seen.astype(np.float32)

    def _agent_features(self, rows: AgentSelection) -> NDArray[np.float32]:
        touched = self._touched[rows].sum(axis=1) / self._tiles[rows]
        return np.stack([touched, self._patience[rows] / PATIENCE], axis=1).astype(np.float32)

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A circle from above: the darker a tile, the larger its number; touched ones are hollow."""

        def seen(place: int, radius: float) -> tuple[float, float]:
            angle = 2 * np.pi * place / int(self._tiles[copy])
            return left + 70 + radius * float(np.sin(angle)), top + 70 - radius * float(np.cos(angle))

        canvas.circle((left + 70, top + 70), 40, fill=(235, 235, 232))
        for tile in range(int(self._tiles[copy])):
            shade = 235 - 10 * int(self._numbers[copy, tile])
            fill = PAPER if self._touched[copy, tile] else (shade, shade, 255)
            canvas.circle(seen(int(self._places[copy, tile]), 58), 7, fill=fill)
        canvas.circle(seen(int(self._here[copy]), 38), 6, fill=(230, 120, 60))
