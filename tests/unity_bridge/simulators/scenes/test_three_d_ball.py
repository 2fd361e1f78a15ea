from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.three_d_ball import BEHAVIOR, ThreeDBall
from unity_bridge.steps import ActionBatch


def act(continuous: np.ndarray) -> ActionBatch:
    return ActionBatch(continuous.astype(np.float32), np.zeros((len(continuous), 0), np.int32))


def test_rotation_is_seen_as_a_quaternions_z_and_x() -> None:
    seen = ThreeDBall(200).reset(2)[BEHAVIOR].observations[0].astype(np.float64)
    z, x = seen[:, 0], seen[:, 1]
    # A turn about x and one about z after it give w·y = z·x; with that, unit length yields the missing two.
    rest = 1 - x**2 - z**2
    w = np.sqrt((rest + np.sqrt(rest**2 - (2 * x * z) ** 2)) / 2)
    y = z * x / w
    normal = np.stack([2 * (x * y - w * z), 1 - 2 * (x**2 + z**2), 2 * (y * z + w * x)], axis=1)
    # So the resting ball's centre is its radius above the platform.
    np.testing.assert_allclose((normal * seen[:, 2:5]).sum(axis=1), 0.5, atol=1e-5)


def test_actions_turn_about_z_and_x() -> None:
    scene = ThreeDBall(1)
    before = scene.reset(2)[BEHAVIOR].observations[0][0, 0:2]
    after = scene.step({BEHAVIOR: act(np.array([[1.0, 0.0]]))})[BEHAVIOR].observations[0][0, 0:2]
    assert 2 * np.degrees(after - before) == pytest.approx(
        [10, 0], abs=0.25
    )  # the other tilt is in it a little
