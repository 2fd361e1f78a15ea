"""A ball on a platform that tilts: the physics of ``sim:3dball``, for many platforms at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Floats

GRAVITY = 9.81
"""In m/s²."""
STEP_S = 0.02
STEPS = 5
"""Physics steps of one advance."""
BALL_RADIUS = 0.5
"""In metres, as every length here."""
HALF_SIDE = 2.5
"""The platform is a square of twice this."""
ROLLING = 5 / 7
"""Share of the pull down the slope that moves a solid ball which rolls; the rest makes it spin."""
CONTACT_DEPTH = 0.25
"""A ball further than this under the surface is beside or below the platform, not on it. A corner that
turns at full speed about both axes rises 0.18 in a physics step."""
TURN = np.radians(2.0)
"""Largest tilt of one physics step."""
MAX_TILT = np.radians(25.0)

_HELD_BACK = (1 - ROLLING) * GRAVITY * STEP_S
_FRACTIONS = (np.arange(1, STEPS + 1) / STEPS)[:, None, None]


class BallsOnPlatforms:
    """N platforms that pivot about their centres, and a ball for each. y is up.

    Each of the five steps of an advance tilts the platform by the same turn; gravity pulls the ball; one
    that would sink into the platform is pushed out along its normal by just as much, which keeps it on a
    rising surface and makes landings dead; while it touches, friction lets it roll without sliding, so
    that 5/7 of the pull along the surface accelerates it. Past the edge it falls.
    """

    def __init__(self, count: int) -> None:
        self.tilt = np.zeros((2, count))
        """About z and about x, radians. Shape [2, N]."""

        self.position = np.zeros((3, count))
        """Position of the ball's centre relative to the platform's. Shape [3, N]."""

        self.velocity = np.zeros((3, count))
        """In m/s. Shape [3, N]."""

        self._axes = np.zeros((STEPS, 3, 3, count))

    def place(self, which: NDArray[np.bool_] | slice, tilt: Floats, aside: Floats) -> None:
        """Puts balls to rest on platforms.

        Args:
            which: the K platforms it is about, shape [N].
            tilt: theirs, radians, shape [2, K].
            aside: how far off the centre along the platform's x and z, shape [2, K].
        """
        axis_x, axis_y, axis_z = platform_axes(tilt[None])[0]
        self.tilt[:, which] = tilt
        self.position[:, which] = axis_x * aside[0] + axis_y * BALL_RADIUS + axis_z * aside[1]
        self.velocity[:, which] = 0

    def advance(self, turn: NDArray[np.floating[Any]]) -> None:
        """Lets 0.1 s pass.

        Args:
            turn: how far to tilt in each step, in units of 2°, clipped to [−1, 1]. Shape [2, N].
        """
        # Minimum and maximum: np.clip takes four times as long for a dozen platforms.
        turn = np.maximum(np.minimum(turn, 1), -1)
        target = np.maximum(np.minimum(self.tilt + STEPS * TURN * turn, MAX_TILT), -MAX_TILT)
        axes = platform_axes(self.tilt + _FRACTIONS * (target - self.tilt), out=self._axes)
        normals = axes[:, 1]
        # Gravity along the surface is g − (g·n) n; a rolling ball does not feel 2/7 of it.
        friction = -_HELD_BACK * normals * normals[:, 1:2]
        friction[:, 1] += _HELD_BACK
        self.tilt = target
        for step in range(STEPS):
            self._fall_and_roll(axes[step], normals[step], friction[step])

    def _fall_and_roll(self, axes: Floats, normal: Floats, friction: Floats) -> None:
        """One physics step, on platforms that end it with these axes."""
        position, velocity = self.position, self.velocity
        velocity[1] -= GRAVITY * STEP_S
        ahead = velocity * STEP_S
        ahead += position
        local = np.einsum("acn,cn->an", axes, ahead)
        depth = BALL_RADIUS - local[1]
        np.abs(local, out=local)
        touching = (depth > 0) & (depth < CONTACT_DEPTH) & (np.maximum(local[0], local[2]) <= HALF_SIDE)
        push = normal * (depth / STEP_S)
        push += friction
        push *= touching
        velocity += push
        position += velocity * STEP_S


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
