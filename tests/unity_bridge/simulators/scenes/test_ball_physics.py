from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.ball_physics import BallsOnPlatforms, platform_axes

LEVEL = np.zeros((2, 1))
HERE = np.ones(1, np.bool_)


def ball(tilt_degrees: tuple[float, float] = (0, 0), aside: tuple[float, float] = (0, 0)) -> BallsOnPlatforms:
    balls = BallsOnPlatforms(1)
    balls.place(HERE, np.radians(tilt_degrees)[:, None], np.array(aside, float)[:, None])
    return balls


def height_above_platform(balls: BallsOnPlatforms) -> float:
    normal = platform_axes(balls.tilt[None])[0, 1, :, 0]
    return float(normal @ balls.position[:, 0]) - 0.5


def test_a_turn_about_z_lifts_the_right_side() -> None:
    x, y, z = platform_axes(np.radians([[[90.0], [0.0]]]))[0, :, :, 0]
    np.testing.assert_allclose([x, y, z], [[0, 1, 0], [-1, 0, 0], [0, 0, 1]], atol=1e-15)


def test_axes_are_orthonormal_and_right_handed() -> None:
    tilt = np.random.default_rng(1).uniform(-1, 1, (3, 2, 4))
    axes = np.moveaxis(platform_axes(tilt), -1, 1)
    np.testing.assert_allclose(
        axes @ axes.swapaxes(-1, -2), np.broadcast_to(np.eye(3), axes.shape), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(axes), 1)


def test_a_ball_rolls_down_with_five_sevenths_of_the_pull() -> None:
    balls = ball(tilt_degrees=(5, 0))
    balls.advance(LEVEL)
    # Tilted about z, the right side is up: the way down is to the left, along −x of the platform.
    speed = 5 / 7 * 9.81 * np.sin(np.radians(5)) * 0.1
    down = -np.array([np.cos(np.radians(5)), np.sin(np.radians(5)), 0])
    np.testing.assert_allclose(balls.velocity[:, 0], speed * down, atol=1e-9)


def test_a_ball_beside_the_platform_falls_freely() -> None:
    balls = ball(aside=(2.6, 0))
    balls.advance(LEVEL)
    assert balls.velocity[1, 0] == pytest.approx(-9.81 * 0.1)
    # Each of the five steps falls with the velocity at its end: g·0.02²·(1+2+3+4+5).
    assert balls.position[1, 0] == pytest.approx(0.5 - 9.81 * 0.0004 * 15)


@pytest.mark.parametrize(("aside", "turn"), [((2, 0), (1, 0)), ((-2, 2), (-1, -1)), ((1, 1), (0.3, -0.1))])
def test_rising_platform_never_lets_the_ball_sink(
    aside: tuple[float, float], turn: tuple[float, float]
) -> None:
    balls = ball(aside=aside)
    balls.advance(np.array(turn)[:, None])
    assert height_above_platform(balls) == pytest.approx(0, abs=1e-9)
    assert balls.position[1, 0] > 0.52


def test_full_action_tilts_ten_degrees_and_more_is_clipped() -> None:
    balls = ball()
    balls.advance(np.array([[0.5], [-7.0]]))
    np.testing.assert_allclose(np.degrees(balls.tilt[:, 0]), [5, -10])
