from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from unity_bridge.side_channels import FloatParameter
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scenes.wall_jump import BIG, SMALL, WallJump
from unity_bridge.simulators.scenes.wall_physics import BLOCK_STOP
from unity_bridge.steps import ActionBatch, StepBatch

STAND, LEFT, RIGHT = range(3)
PLACE, FEET, RISING, GROUNDED, WALL, HAS_BLOCK, BLOCK, TO_BLOCK = range(8)

Policy = Callable[[np.ndarray], list[list[int]]]
Episode = tuple[str, float, int, bool]


def hurdle(seen: np.ndarray) -> list[list[int]]:
    """Runs, and jumps a little before the wall."""
    near = (seen[:, PLACE] * 9 >= -4) & (seen[:, PLACE] * 9 < -2.9)
    return [[RIGHT, int(jump)] for jump in near]


def climb(seen: np.ndarray) -> list[list[int]]:
    """Pushes the block to the wall, jumps onto it, and over the wall from there."""
    ready = np.abs(seen[:, BLOCK] * 9 - BLOCK_STOP) < 1e-4
    on_top = seen[:, FEET] * 9 > 3.9
    jump = np.where(on_top, seen[:, PLACE] * 9 > -2, ready & (seen[:, PLACE] < 0))
    return [[RIGHT, int(each)] for each in jump & (seen[:, GROUNDED] > 0)]


def decide(policy: Policy, waiting: StepBatch) -> ActionBatch:
    choices = policy(waiting.observations[0][waiting.num_terminal :])
    discrete = np.array(choices, np.int32).reshape(-1, 2)
    return ActionBatch(np.zeros((len(discrete), 0), np.float32), discrete)


def play(scene: WallJump, small: Policy, big: Policy, steps: int, seed: int = 0) -> dict[int, list[Episode]]:
    """Every agent's complete episodes: behavior, return, decisions, whether it was terminated."""
    batches = scene.reset(seed)
    running = {
        int(agent): (behavior, 0.0, 0) for behavior in batches for agent in batches[behavior].agent_ids
    }
    episodes: dict[int, list[Episode]] = {agent: [] for agent in running}
    for _ in range(steps):
        batches = scene.step({SMALL: decide(small, batches[SMALL]), BIG: decide(big, batches[BIG])})
        started = {}
        for behavior, batch in batches.items():
            for row, agent in enumerate(batch.agent_ids.tolist()):
                if row >= batch.num_terminal and batch.rewards[row] == 0:
                    started[agent] = (behavior, 0.0, 0)
                    continue
                name, return_, decisions = running[agent]
                assert name == behavior
                running[agent] = (name, return_ + float(batch.rewards[row]), decisions + 1)
                if row < batch.num_terminal:
                    episodes[agent].append((*running[agent], bool(batch.terminated[row])))
        running |= started
    return episodes


def with_walls(
    small: float = 4.0, big: float = 8.0, agents: int = 12, academy: Academy | None = None
) -> WallJump:
    academy = academy or Academy()
    academy.parameters.set(FloatParameter("small_wall_height", small))
    academy.parameters.set(FloatParameter("big_wall_height", big))
    return WallJump(agents, academy)


@pytest.mark.parametrize("height", [0.0, 4.0])
def test_small_walls_are_jumped_without_losing_time(height: float) -> None:
    episodes = play(with_walls(small=height), hurdle, climb, steps=60)
    small = [episode for ended in episodes.values() for episode in ended if episode[0] == SMALL]
    assert len(small) > 10
    for _, return_, decisions, terminated in small:
        assert (return_, decisions, terminated) == (pytest.approx(0.94), 12, True)


@pytest.mark.parametrize("height", [5.0, 8.0])
def test_big_walls_are_climbed_with_the_block(height: float) -> None:
    episodes = play(with_walls(big=height), hurdle, climb, steps=60)
    big = [episode for ended in episodes.values() for episode in ended if episode[0] == BIG]
    assert len(big) > 10
    for _, return_, decisions, terminated in big:
        assert return_ == pytest.approx(1 - 0.005 * decisions)
        assert return_ > 0.9
        assert terminated


def test_an_agent_keeps_its_id_and_changes_its_behavior() -> None:
    episodes = play(with_walls(), hurdle, climb, steps=300)
    played = [behavior for ended in episodes.values() for behavior, *_ in ended]
    assert all({behavior for behavior, *_ in ended} == {SMALL, BIG} for ended in episodes.values())
    assert 0.4 < played.count(BIG) / len(played) < 0.6


def test_jumping_is_masked_in_the_air() -> None:
    scene = with_walls()
    steps = scene.reset(0)
    assert all(batch.allowed_actions.all() for batch in steps.values())
    steps = scene.step({name: decide(lambda seen: [[STAND, 1]] * len(seen), steps[name]) for name in steps})
    for batch in steps.values():
        assert not batch.observations[0][:, GROUNDED].any()
        np.testing.assert_array_equal(batch.allowed_actions, [[True] * 4 + [False]] * len(batch))


def test_observations_match_numbers_by_hand() -> None:
    scene = with_walls(small=3.0, big=6.0)
    steps = scene.reset(0)
    moved = scene.step({name: decide(lambda seen: [[RIGHT, 1]] * len(seen), steps[name]) for name in steps})
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
