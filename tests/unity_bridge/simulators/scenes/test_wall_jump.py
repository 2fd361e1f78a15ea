from __future__ import annotations

import numpy as np

from unity_bridge.side_channels import FloatParameter
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Steps
from unity_bridge.simulators.scenes.wall_jump import BIG, SMALL, WallJump
from unity_bridge.steps import ActionBatch

STAND, RIGHT = 0, 2
PLACE, FEET, RISING, GROUNDED, WALL, HAS_BLOCK, BLOCK, TO_BLOCK = range(8)


def everybody(steps: Steps, run: int) -> dict[str, ActionBatch]:
    """All run so, and jump."""
    return {
        name: ActionBatch(np.zeros((len(batch), 0), np.float32), np.array([[run, 1]] * len(batch), np.int32))
        for name, batch in steps.items()
    }


def test_jumping_is_masked_in_the_air() -> None:
    scene = WallJump(12)
    steps = scene.reset(0)
    assert all(batch.allowed_actions.all() for batch in steps.values())
    steps = scene.step(everybody(steps, STAND))
    for batch in steps.values():
        assert not batch.observations[0][:, GROUNDED].any()
        np.testing.assert_array_equal(batch.allowed_actions, [[True] * 4 + [False]] * len(batch))


def test_observations_match_numbers_by_hand() -> None:
    academy = Academy()
    academy.parameters.set(FloatParameter("small_wall_height", 3.0))
    academy.parameters.set(FloatParameter("big_wall_height", 6.0))
    scene = WallJump(12, academy)
    steps = scene.reset(0)
    moved = scene.step(everybody(steps, RIGHT))
    for name, height in ((SMALL, 3.0), (BIG, 6.0)):
        before, after = steps[name].observations[0], moved[name].observations[0]
        np.testing.assert_allclose(after[:, PLACE] - before[:, PLACE], 1 / 9, atol=1e-6)
        np.testing.assert_allclose(after[:, FEET], 2.4 / 9, atol=1e-6)
        np.testing.assert_allclose(after[:, RISING], 10 / 14, atol=1e-6)
        np.testing.assert_allclose(after[:, WALL], height / 9, atol=1e-6)
        assert (before[:, PLACE] >= -8 / 9).all()
        assert (before[:, PLACE] <= -7 / 9).all()
    block = steps[BIG].observations[0]
    assert (block[:, HAS_BLOCK] == 1).all()
    np.testing.assert_allclose(block[:, TO_BLOCK], block[:, BLOCK] - block[:, PLACE], atol=1e-6)
    assert not steps[SMALL].observations[0][:, HAS_BLOCK:].any()
