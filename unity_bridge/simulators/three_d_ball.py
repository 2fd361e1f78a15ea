"""``sim:3dball``: keep a ball on a platform by tilting it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.drawing import INK, Canvas, grid_cells
from unity_bridge.simulators.scene import Steps, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

Floats = NDArray[np.float64]

BEHAVIOR = "3DBall?team=0"
MAX_DECISIONS = 1000

GRAVITY = 9.81
"""In m/s²."""
SUBSTEP_S = 0.02
SUBSTEPS = 5
"""Physics steps between two decisions."""
BALL_RADIUS = 0.5
"""In metres, as every length here."""
HALF_SIDE = 2.5
"""The platform is a square of twice this."""
ROLLING = 5 / 7
"""Share of the pull down the slope that moves a solid ball which rolls; the rest makes it spin."""
CONTACT_DEPTH = 0.1
"""A ball further than this under the surface is beside or below the platform, not on it."""
TILT_PER_DECISION = np.radians(2.0)
MAX_TILT = np.radians(25.0)
START_TILT = np.radians(10.0)
START_OFFSET = 1.5
FALLEN_ASIDE = 3.0
FALLEN_BELOW = 2.0

REWARD = 0.1
PENALTY = -1.0

_DOWN_THE_SLOPE = (1 - ROLLING) * GRAVITY * SUBSTEP_S
_FRACTIONS = (np.arange(1, SUBSTEPS + 1) / SUBSTEPS)[:, None, None]


class ThreeDBall:
    """N areas, each a platform that pivots about its centre and a ball that rolls on it.

    Observation (8): the z and x components of the platform's rotation (a unit quaternion), the ball's
    position relative to the platform (3, metres, y is up) and its velocity (3, m/s). Action (2, in
    [−1, 1]): how far to tilt about z and about x until the next decision, in units of 2°, within ±25°.
    Reward: 0.1 for each decision that the ball survives; −1 and the end when it falls, which means more than
    3 m aside or 2 m below. After 1000 decisions the episode is interrupted, so the best return is 100.

    Physics, five steps of 0.02 s for each decision: the tilt grows evenly over them; gravity pulls; a ball
    that would sink into the platform is pushed out along the platform's normal by just as much, which keeps
    it on a rising surface and makes landings dead; while it touches, friction lets it roll without sliding,
    so that 5/7 of the pull along the surface accelerates it. Past the edge it falls. An episode starts with
    the ball at rest on the platform, up to 1.5 m off its centre each way, tilted up to 10° about each axis.
    """

    frame_s = SUBSTEPS * SUBSTEP_S

    def __init__(self, agents: int = 12) -> None:
        self._agent_ids = np.arange(agents, dtype=np.int64)
        self._rng = np.random.default_rng()
        self._tilt = np.zeros((2, agents))
        """About z and about x, radians."""
        self._position = np.zeros((3, agents))
        self._velocity = np.zeros((3, agents))
        self._decisions = np.zeros(agents, np.int64)
        self._frames = np.zeros((SUBSTEPS, 3, 3, agents))
        """Where the platforms' axes point at the end of each physics step: [step, axis, component, area]."""

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
        self._advance(actions[BEHAVIOR].continuous.T)
        self._decisions += 1
        fallen = self._fallen()
        ended = fallen | (self._decisions >= MAX_DECISIONS)
        rewards = np.where(fallen, np.float32(PENALTY), np.float32(REWARD))
        if not ended.any():
            return {BEHAVIOR: step_batch([self._observe()], rewards, agent_ids=self._agent_ids)}
        return {
            BEHAVIOR: concatenate(self._ending(ended, fallen, rewards), self._next_episodes(ended, rewards))
        }

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
        axis_x, axis_y, axis_z = platform_axes(tilt[None])[0]
        self._tilt[:, areas] = tilt
        self._position[:, areas] = axis_x * aside[0] + axis_y * BALL_RADIUS + axis_z * aside[1]
        self._velocity[:, areas] = 0
        self._decisions[areas] = 0

    def _advance(self, action: NDArray[np.float32]) -> None:
        """The physics between two decisions. Action: [2, areas]."""
        turn = np.clip(action, -1, 1) * TILT_PER_DECISION
        target = np.clip(self._tilt + turn, -MAX_TILT, MAX_TILT)
        frames = platform_axes(self._tilt + _FRACTIONS * (target - self._tilt), out=self._frames)
        normals = frames[:, 1]
        # The part of gravity along the surface, g − (g·n) n, of which a rolling ball does not feel 2/7.
        friction = -_DOWN_THE_SLOPE * normals * normals[:, 1:2]
        friction[:, 1] += _DOWN_THE_SLOPE
        self._tilt = target
        for axes, normal, spin in zip(frames, normals, friction, strict=True):
            self._fall_and_roll(axes, normal, spin)

    def _fall_and_roll(self, axes: Floats, normal: Floats, friction: Floats) -> None:
        """One physics step on platforms that end it with these axes."""
        position, velocity = self._position, self._velocity
        velocity[1] -= GRAVITY * SUBSTEP_S
        ahead = velocity * SUBSTEP_S
        ahead += position
        local = np.einsum("acn,cn->an", axes, ahead)
        depth = BALL_RADIUS - local[1]
        np.abs(local, out=local)
        touching = (depth > 0) & (depth < CONTACT_DEPTH) & (np.maximum(local[0], local[2]) <= HALF_SIDE)
        push = normal * (depth / SUBSTEP_S)
        push += friction
        push *= touching
        velocity += push
        position += velocity * SUBSTEP_S

    def _fallen(self) -> NDArray[np.bool_]:
        x, y, z = self._position
        return (np.maximum(np.abs(x), np.abs(z)) > FALLEN_ASIDE) | (y < -FALLEN_BELOW)

    def _observe(self) -> NDArray[np.float32]:
        half = self._tilt / 2
        sine, cosine = np.sin(half), np.cos(half)
        observation = np.empty((len(self._agent_ids), 8), np.float32)
        observation[:, 0:2] = (sine * cosine[::-1]).T
        observation[:, 2:5] = self._position.T
        observation[:, 5:8] = self._velocity.T
        return observation

    def render(self) -> NDArray[np.uint8]:
        shown = min(len(self._agent_ids), 12)
        cells, width, height = grid_cells(shown, cell=(160, 130))
        canvas = Canvas(width, height)
        axes = platform_axes(self._tilt[None, :, :shown])[0]
        for area, (left, top) in enumerate(cells):
            self._draw(canvas, axes[:, :, area], self._position[:, area], left + 80, top + 75)
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


def platform_axes(tilt: Floats, out: Floats | None = None) -> Floats:
    """The axes of platforms turned about x first and about z then.

    Args:
        tilt: about z and about x, radians, shape [T, 2, N].
        out: where to write the result.

    Returns:
        The platform's x, y (normal) and z axes in world coordinates, shape [T, axis, component, N].
    """
    (sin_z, sin_x), (cos_z, cos_x) = np.sin(tilt).swapaxes(0, 1), np.cos(tilt).swapaxes(0, 1)
    axes = np.zeros((len(tilt), 3, 3, tilt.shape[2])) if out is None else out
    axes[:, 0, 0] = cos_z
    axes[:, 0, 1] = sin_z
    axes[:, 1, 0] = -sin_z * cos_x
    axes[:, 1, 1] = cos_z * cos_x
    axes[:, 1, 2] = sin_x
    axes[:, 2, 0] = sin_z * sin_x
    axes[:, 2, 1] = -cos_z * sin_x
    axes[:, 2, 2] = cos_x
    return axes
