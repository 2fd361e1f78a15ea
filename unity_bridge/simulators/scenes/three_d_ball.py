"""``sim:3dball``: keep a ball on a platform by tilting it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Floats
from unity_bridge.simulators.rendering.drawing import Canvas
from unity_bridge.simulators.scene import Steps, vector_sensor
from unity_bridge.simulators.scenes import ball_physics
from unity_bridge.simulators.scenes.ball_physics import (
    BALL_RADIUS,
    HALF_SIDE,
    BallsOnPlatforms,
    platform_axes,
)
from unity_bridge.simulators.scenes.single_behavior import AgentSelection, SingleBehaviorScene
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation

BEHAVIOR = "3DBall?team=0"
MAX_DECISIONS = 1000

START_TILT = np.radians(10.0)
START_OFFSET = 1.5
"""In metres, as every length here."""
FALLEN_ASIDE = 3.0
FALLEN_BELOW = 2.0

REWARD = 0.1
PENALTY = -1.0

_DISTANCE = 16.0
"""From the eye of the picture to the middle of a platform."""
_LEVEL, _ABOVE = float(np.cos(0.55)), float(np.sin(0.55))
"""Of the angle at which the eye looks down."""
_CIRCLE = np.stack([np.cos(np.arange(0, 6.28, 0.25)), np.sin(np.arange(0, 6.28, 0.25))], axis=1)
_BALL, _SHADOW = (230, 120, 60), (92, 126, 164)


class ThreeDBall(SingleBehaviorScene):
    """N areas, each a platform that pivots about its centre and a ball that rolls on it.

    Observation (8): the z and x components of the platform's rotation (a unit quaternion), the ball's
    position relative to the platform (3, metres, y is up) and its velocity (3, m/s). Action (2, in
    [−1, 1]): how fast to tilt about z and about x until the next decision, in units of 2° per physics step
    of 0.02 s (10° in all), within ±25°. Reward: 0.1 for each decision that the ball survives; −1 and the end
    when it falls, which means more than 3 m aside or 2 m below. After 1000 decisions the episode is
    interrupted, so the best return is 100.

    An episode starts with the ball at rest on the platform, up to 1.5 m off its centre each way, tilted up to
    10° about each axis. A decision lasts 0.1 s; ``ball_physics`` has its physics.
    """

    behavior = BEHAVIOR
    frame_s = ball_physics.STEPS * ball_physics.STEP_S
    cell = (160, 130)
    shown = 12

    def __init__(self, agents: int = 12) -> None:
        super().__init__(agents)
        self._balls = BallsOnPlatforms(agents)
        self._decisions = np.zeros(agents, np.int64)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: BehaviorSpec((vector_sensor("VectorSensor_size8", 8),), ActionSpec(2))}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._balls.advance(actions[BEHAVIOR].continuous.T)
        self._decisions += 1
        fallen = self._fallen()
        ended = fallen | (self._decisions >= MAX_DECISIONS)
        return self._next_steps(np.where(fallen, PENALTY, REWARD), terminated=fallen, ended=ended)

    def expert(self) -> Mapping[str, ActionBatch]:
        """Tilts against where the balls are and where they go."""
        (x, _, z), (x_speed, _, z_speed) = self._balls.position, self._balls.velocity
        wanted = np.stack([0.1 * x + 0.2 * x_speed, -(0.1 * z + 0.2 * z_speed)])
        turn = np.clip(2 * (wanted - self._balls.tilt), -1, 1).T.astype(np.float32)
        return {BEHAVIOR: ActionBatch(turn, np.zeros((len(turn), 0), np.int32))}

    def _start(self, which: AgentSelection) -> None:
        count = self._num(which)
        tilt = self._rng.uniform(-START_TILT, START_TILT, (2, count))
        aside = self._rng.uniform(-START_OFFSET, START_OFFSET, (2, count))
        self._balls.place(which, tilt, aside)
        self._decisions[which] = 0

    def _fallen(self) -> NDArray[np.bool_]:
        x, y, z = self._balls.position
        return (np.maximum(np.abs(x), np.abs(z)) > FALLEN_ASIDE) | (y < -FALLEN_BELOW)

    def _observe(self, rows: AgentSelection) -> list[Observation]:
        half = self._balls.tilt[:, rows] / 2
        sine, cosine = np.sin(half), np.cos(half)
        observation = np.empty((half.shape[1], 8), np.float32)
        observation[:, 0:2] = (sine * cosine[::-1]).T
        observation[:, 2:5] = self._balls.position[:, rows].T
        observation[:, 5:8] = self._balls.velocity[:, rows].T
        return [observation]

    def _draw(self, canvas: Canvas, copy: int, left: int, top: int) -> None:
        """A platform in perspective, from the front and above. The ball's shadow shows where it rolls."""

        def seen(point: Floats) -> tuple[float, float]:
            x, y, z = point.tolist()
            size = 25 * _DISTANCE / (_DISTANCE + z * _LEVEL - y * _ABOVE)
            return left + 80 + size * x, top + 68 - size * (y * _LEVEL + z * _ABOVE)

        axes = platform_axes(self._balls.tilt[None, :, copy : copy + 1])[0, :, :, 0]
        ball = self._balls.position[:, copy]
        height = axes[1] @ ball
        corners = [HALF_SIDE * (a * axes[0] + b * axes[2]) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        upper = [seen(corner) for corner in corners]
        lower = [seen(corner - 0.35 * axes[1]) for corner in corners]
        if height < 0:
            canvas.circle(seen(ball), 25 * BALL_RADIUS, fill=_BALL)
        for i, j in ((3, 0), (1, 2), (0, 1)):  # the front last; the upper face hides the rest
            canvas.polygon([upper[i], upper[j], lower[j], lower[i]], fill=(84, 118, 156))
        canvas.polygon(upper, fill=(120, 160, 200))
        if height >= 0:
            around = ball - height * axes[1] + 0.8 * BALL_RADIUS * _CIRCLE @ axes[[0, 2]]
            if np.abs(axes[[0, 2]] @ ball).max() < HALF_SIDE:
                canvas.polygon([seen(point) for point in around], fill=_SHADOW, outline=_SHADOW)
            canvas.circle(seen(ball), 25 * BALL_RADIUS, fill=_BALL)
