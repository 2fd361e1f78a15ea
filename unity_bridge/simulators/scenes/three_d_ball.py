"""``sim:3dball``: keep a ball on a platform by tilting it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Floats
from unity_bridge.simulators.rendering.drawing import INK, Canvas, grid_cells
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.simulators.scenes import ball_physics
from unity_bridge.simulators.scenes.ball_physics import (
    BALL_RADIUS,
    HALF_SIDE,
    BallsOnPlatforms,
    platform_axes,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

BEHAVIOR = "3DBall?team=0"
MAX_DECISIONS = 1000

START_TILT = np.radians(10.0)
START_OFFSET = 1.5
"""In metres, as every length here."""
FALLEN_ASIDE = 3.0
FALLEN_BELOW = 2.0

REWARD = 0.1
PENALTY = -1.0


class ThreeDBall:
    """N areas, each a platform that pivots about its centre and a ball that rolls on it.

    Observation (8): the z and x components of the platform's rotation (a unit quaternion), the ball's
    position relative to the platform (3, metres, y is up) and its velocity (3, m/s). Action (2, in
    [−1, 1]): how fast to tilt about z and about x until the next decision, in units of 2° per physics step
    of 0.02 s (10° in all), within ±25°. Reward: 0.1 for each decision that the ball survives; −1 and the end
    when it falls, which means more than 3 m aside or 2 m below. After 1000 decisions the episode is
    interrupted, so the best return is 100.

    An episode starts with the ball at rest on the platform, up to 1.5 m off its centre each way, tilted up to
    10° about each axis. A decision lasts 0.1 s; ``ball_physics`` describes what happens in it.
    """

    frame_s = ball_physics.STEPS * ball_physics.STEP_S

    def __init__(self, agents: int = 12) -> None:
        self._agent_ids = np.arange(agents, dtype=np.int64)
        self._rng = np.random.default_rng()
        self._balls = BallsOnPlatforms(agents)
        self._decisions = np.zeros(agents, np.int64)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("VectorSensor_size8", 8),), ActionSpec(2))}

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._start(np.ones(len(self._agent_ids), np.bool_))
        rewards = np.zeros(len(self._agent_ids), np.float32)
        return {BEHAVIOR: step_batch([self._observe()], rewards, agent_ids=self._agent_ids)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._balls.advance(actions[BEHAVIOR].continuous.T)
        self._decisions += 1
        fallen = self._fallen()
        ended = fallen | (self._decisions >= MAX_DECISIONS)
        rewards = np.where(fallen, np.float32(PENALTY), np.float32(REWARD))
        if not ended.any():
            return {BEHAVIOR: step_batch([self._observe()], rewards, agent_ids=self._agent_ids)}
        return {
            BEHAVIOR: concatenate(self._ending(ended, fallen, rewards), self._next_episodes(ended, rewards))
        }

    def expert(self) -> Mapping[str, ActionBatch]:
        """Tilts against where the balls are and where they go."""
        (x, _, z), (x_speed, _, z_speed) = self._balls.position, self._balls.velocity
        wanted = np.stack([0.1 * x + 0.2 * x_speed, -(0.1 * z + 0.2 * z_speed)])
        turn = np.clip(2 * (wanted - self._balls.tilt), -1, 1).T.astype(np.float32)
        return {BEHAVIOR: ActionBatch(turn, np.zeros((len(turn), 0), np.int32))}

    def close(self) -> None:
        pass

    def _ending(
        self, ended: NDArray[np.bool_], fallen: NDArray[np.bool_], rewards: NDArray[np.float32]
    ) -> StepBatch:
        return step_batch(
            [self._observe()[ended]],
            rewards[ended],
            agent_ids=self._agent_ids[ended],
            terminated=fallen[ended],
            truncated=~fallen[ended],
        )

    def _next_episodes(self, ended: NDArray[np.bool_], rewards: NDArray[np.float32]) -> StepBatch:
        self._start(ended)
        return step_batch(
            [self._observe()], np.where(ended, np.float32(0), rewards), agent_ids=self._agent_ids
        )

    def _start(self, areas: NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(areas))
        tilt = self._rng.uniform(-START_TILT, START_TILT, (2, count))
        aside = self._rng.uniform(-START_OFFSET, START_OFFSET, (2, count))
        self._balls.place(areas, tilt, aside)
        self._decisions[areas] = 0

    def _fallen(self) -> NDArray[np.bool_]:
        x, y, z = self._balls.position
        return (np.maximum(np.abs(x), np.abs(z)) > FALLEN_ASIDE) | (y < -FALLEN_BELOW)

    def _observe(self) -> NDArray[np.float32]:
        half = self._balls.tilt / 2
        sine, cosine = np.sin(half), np.cos(half)
        observation = np.empty((len(self._agent_ids), 8), np.float32)
        observation[:, 0:2] = (sine * cosine[::-1]).T
        observation[:, 2:5] = self._balls.position.T
        observation[:, 5:8] = self._balls.velocity.T
        return observation

    def render(self) -> NDArray[np.uint8]:
        shown = min(len(self._agent_ids), 12)
        cells, width, height = grid_cells(shown, cell=(160, 130))
        canvas = Canvas(width, height)
        axes = platform_axes(self._balls.tilt[None, :, :shown])[0]
        for area, (left, top) in enumerate(cells):
            self._draw(canvas, axes[:, :, area], self._balls.position[:, area], left + 80, top + 75)
        return canvas.pixels()

    @staticmethod
    def _draw(canvas: Canvas, axes: Floats, ball: Floats, x: float, y: float) -> None:
        def seen(point: Floats) -> tuple[float, float]:
            # From the front and a little above: z goes up the page at a third of its length.
            return x + 24 * float(point[0]), y - 24 * float(point[1] + point[2] / 3)

        sides = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
        corners = [HALF_SIDE * (a * axes[0] + b * axes[2]) for a, b in sides]
        canvas.polygon([seen(corner) for corner in corners], fill=(120, 160, 200), outline=INK)
        canvas.circle(seen(ball), 24 * BALL_RADIUS, fill=(230, 120, 60))
