from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.three_d_ball import BEHAVIOR, ThreeDBall
from unity_bridge.steps import ActionBatch, StepBatch


def act(continuous: np.ndarray) -> ActionBatch:
    return ActionBatch(continuous.astype(np.float32), np.zeros((len(continuous), 0), np.int32))


def do_nothing(steps: StepBatch) -> ActionBatch:
    return act(np.zeros((len(steps), 2)))


def test_fall_and_next_start_share_one_message() -> None:
    scene = ThreeDBall(4)
    steps = scene.reset(0)[BEHAVIOR]
    while not steps.num_terminal:
        steps = scene.step({BEHAVIOR: do_nothing(steps)})[BEHAVIOR]
    ended = steps.num_terminal
    assert steps.agent_ids[ended:].tolist() == [0, 1, 2, 3]
    assert steps.rewards[:ended].tolist() == [-1] * ended
    assert steps.terminated[:ended].all()
    ball = steps.observations[0][:ended, 2:5]
    assert np.all((np.abs(ball[:, [0, 2]]).max(axis=1) > 3) | (ball[:, 1] < -2))
    again = ended + steps.agent_ids[:ended]
    assert steps.rewards[again].tolist() == [0] * ended
    assert np.all(np.abs(steps.observations[0][again, 2:5]) < 2.2)
    assert np.all(steps.observations[0][again, 5:8] == 0)


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
