from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.duel import SIDES, STAY, Duel
from unity_bridge.simulators.group_scenes.duel_court import (
    FASTER,
    HALF_PADDLE,
    PADDLE_X,
    SERVE_SPEED,
    SPIN,
    DuelCourt,
    fly,
    fold,
)
from unity_bridge.simulators.scene import choices


def test_the_walls_reflect_the_ball() -> None:
    heights = np.array([0.0, 0.9, 1.1, 2.5, 3.2, -1.1, -2.9, 5.3])
    folded, turned = fold(heights)
    np.testing.assert_allclose(folded, [0, 0.9, 0.9, -0.5, -0.8, -0.9, 0.9, 0.7])
    assert turned.tolist() == [False, False, True, True, False, True, True, True]
    ball, speed = fly(np.array([[0.0, 0.9]]), np.array([[0.1, 0.2]]), np.array([1.0]))
    np.testing.assert_allclose(ball, [[0.1, 0.9]])
    np.testing.assert_allclose(speed, [[0.1, -0.2]])


def court(ball: tuple[float, float], speed: tuple[float, float]) -> DuelCourt:
    """One court with a paddle in the middle of each side."""
    made = DuelCourt(1, 1)
    made.ball[0], made.speed[0] = ball, speed
    return made


STILL = np.zeros((1, 2, 1))


@pytest.mark.parametrize("side", [-1, 1])
def test_paddles_return_the_ball_faster_and_steeper_off_center(side: int) -> None:
    made = court((side * 0.85, 0.5 * HALF_PADDLE), (side * 0.1, 0))
    assert made.advance(STILL).tolist() == [0]
    np.testing.assert_allclose(made.ball, [[side * PADDLE_X, 0.5 * HALF_PADDLE]])
    np.testing.assert_allclose(made.speed, [[-side * 0.1 * FASTER, SPIN * 0.5 * 0.1 * FASTER]])
    assert made.advance(STILL).tolist() == [0]
    np.testing.assert_allclose(made.ball[0, 0], side * (PADDLE_X - 0.1 * FASTER))


def test_a_fast_ball_does_not_slip_through_a_paddle() -> None:
    made = court((0.0, 0.0), (5.0, 0.0))
    assert made.advance(STILL).tolist() == [0]
    assert made.speed[0, 0] < 0


@pytest.mark.parametrize("paddles", [1, 2])
def test_both_sides_observe_the_court_playing_to_the_right(paddles: int) -> None:
    scene = Duel(copies=2, agents_per_copy=paddles)
    scene.reset(1)
    made = scene._court
    made.ball[0], made.speed[0] = (0.2, 0.3), (SERVE_SPEED, -SERVE_SPEED / 2)
    made.ball[1], made.speed[1] = (-0.2, 0.3), (-SERVE_SPEED, -SERVE_SPEED / 2)
    made.paddles[0, 0], made.paddles[0, 1] = 0.4, -0.4
    made.paddles[1, 0], made.paddles[1, 1] = -0.4, 0.4
    still = choices(np.full(2 * paddles, STAY))
    steps = scene.step(dict.fromkeys(SIDES, still))
    left, right = (steps[side].observations[0] for side in SIDES)
    np.testing.assert_allclose(left[:paddles], right[paddles:], atol=1e-6)
    np.testing.assert_allclose(right[:paddles], left[paddles:], atol=1e-6)
    np.testing.assert_allclose(left[0, :6], [0.28, 0.26, 1, -0.5, 1 - PADDLE_X, 0.4], atol=1e-6)
    np.testing.assert_allclose(right[0, :6], [-0.28, 0.26, -1, -0.5, 1 - PADDLE_X, -0.4], atol=1e-6)
    own, others = left[0, 4 : 4 + 2 * paddles], left[0, 4 + 2 * paddles :]
    np.testing.assert_allclose(own[1::2], 0.4)
    np.testing.assert_allclose(others[1::2], -0.4)
    np.testing.assert_allclose(others[::2], [1.9, 1.65][:paddles])
