from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.scenes.three_d_ball import BEHAVIOR, ThreeDBall
from unity_bridge.steps import ActionBatch, StepBatch


def act(continuous: np.ndarray) -> ActionBatch:
    return ActionBatch(continuous.astype(np.float32), np.zeros((len(continuous), 0), np.int32))


def balance(steps: StepBatch) -> ActionBatch:
    """Tilts against where the ball is and where it goes."""
    seen = steps.observations[0]
    tilt = 2 * np.arcsin(seen[:, 0:2])
    about_z = 0.1 * seen[:, 2] + 0.2 * seen[:, 5]
    about_x = -(0.1 * seen[:, 4] + 0.2 * seen[:, 7])
    return act((np.stack([about_z, about_x], axis=1) - tilt) / np.radians(30))


def do_nothing(steps: StepBatch) -> ActionBatch:
    return act(np.zeros((len(steps), 2)))


def test_handmade_controller_reaches_the_best_return(play) -> None:
    episodes = play(ThreeDBall(24), balance, steps=1000)
    assert sorted(episodes) == list(range(24))
    for (return_, decisions, terminated), *others in episodes.values():
        assert (decisions, terminated, others) == (1000, False, [])
        assert return_ == pytest.approx(100, abs=1e-3)


def test_doing_nothing_fails_soon(play) -> None:
    episodes = play(ThreeDBall(), do_nothing, steps=600, seed=3)
    ended = [episode for agent in episodes.values() for episode in agent]
    assert len(ended) > 100
    assert np.mean([return_ for return_, _, _ in ended]) < 5
    assert all(terminated for _, _, terminated in ended)


def test_random_actions_fail_soon(play) -> None:
    rng = np.random.default_rng(5)
    episodes = play(ThreeDBall(), lambda steps: act(rng.uniform(-1, 1, (len(steps), 2))), steps=600)
    returns = [return_ for agent in episodes.values() for return_, _, _ in agent]
    assert np.mean(returns) < 5


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


def test_first_rows_show_resting_balls_on_tilted_platforms() -> None:
    seen = ThreeDBall(200).reset(1)[BEHAVIOR].observations[0]
    assert seen.shape == (200, 8)
    assert np.all(np.abs(seen[:, 0:2]) <= np.sin(np.radians(5)) + 1e-6)
    assert np.all(seen[:, 5:8] == 0)
    # 1.5 m aside on both axes and half a metre up, in the world at most √(1.5² + 1.5² + 0.5²) away.
    assert np.all(np.linalg.norm(seen[:, 2:5], axis=1) <= np.sqrt(4.75) + 1e-6)
    assert np.std(seen[:, 2]) == pytest.approx(1.5 / np.sqrt(3), abs=0.15)


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


def test_a_reset_starts_anew_without_ending_anything() -> None:
    scene = ThreeDBall(3)
    first = scene.reset(4)[BEHAVIOR]
    scene.step({BEHAVIOR: act(np.ones((3, 2)))})
    again = scene.reset()[BEHAVIOR]
    assert again.num_terminal == 0
    assert again.agent_ids.tolist() == [0, 1, 2]
    assert np.all(again.observations[0][:, 5:8] == 0)
    assert not np.array_equal(first.observations[0], again.observations[0])


def test_a_picture_shows_the_ball_move() -> None:
    scene = ThreeDBall(2)
    scene.reset(0)
    before = scene.render()
    scene.step({BEHAVIOR: act(np.ones((2, 2)))})
    after = scene.render()
    assert before.dtype == np.uint8
    assert before.shape == after.shape == (130, 320, 3)
    assert not np.array_equal(before, after)
