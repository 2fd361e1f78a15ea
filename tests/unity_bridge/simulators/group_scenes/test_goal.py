"""The shots of sim:goal: who stops which, who sees what, and what the group earns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.goal import (
    KEEPER,
    PLAYER,
    STAY,
    Goal,
)
from unity_bridge.simulators.scene import Steps, choices
from unity_bridge.steps import ActionBatch


def acts(number: float, move: int, copies: int = 1) -> dict[str, ActionBatch]:
    """Every keeper does the same, and so does every player of two."""
    numbers = np.full((copies, 1), number, np.float32)
    return {
        KEEPER: ActionBatch(numbers, np.zeros((copies, 0), np.int32)),
        PLAYER: choices(np.full(copies * 2, move)),
    }


def shot(*, starts: float, ends: float, high: bool) -> Goal:
    """One copy and one shot."""
    scene = Goal(copies=1, agents_per_copy=3)
    scene.reset(0)
    scene._balls[:] = (1.0, starts)
    scene._slopes[:] = (ends - starts) / 20
    scene._high[:] = high
    return scene


def outcome(scene: Goal, number: float = 0.0, move: int = STAY) -> tuple[float, int]:
    """What the group earns for the shot at hand, and after how many steps."""
    for step in range(1, 30):
        steps = scene.step(acts(number, move))
        if steps[KEEPER].num_terminal:
            paid = {float(batch.group_rewards[0]) for batch in steps.values()}
            assert len(paid) == 1
            return paid.pop(), step
    raise AssertionError("the shot never ended")


@pytest.mark.parametrize(
    ("starts", "ends", "high", "expected"),
    [
        (0.0, 0.0, False, (1.0, 6)),  # by the first player, at x = 0.4
        (0.0, 0.0, True, (1.0, 20)),  # over both, into the keeper's hands
        (0.9, 0.1, False, (1.0, 20)),  # past both: 0.66 and 0.34 off
        (0.9, -0.9, False, (0.0, 20)),
        (0.6, -0.4, False, (1.0, 14)),  # by the second: -0.1 at x = -0.4
        (0.5, 0.5, False, (0.0, 20)),
    ],
)
def test_who_stops_a_shot(starts: float, ends: float, high: bool, expected: tuple[float, int]) -> None:
    assert outcome(shot(starts=starts, ends=ends, high=high)) == expected


def test_a_keeper_sees_late_and_players_from_the_start() -> None:
    scene = shot(starts=0.5, ends=0.5, high=False)
    scene._players[:] = [-0.8, -0.6]
    steps: Steps = scene.step(acts(1.0, STAY))
    (keeper,) = steps[KEEPER].observations
    np.testing.assert_allclose(keeper, [[0.06, 0.0, 0.0, 0.0, -0.8, -0.6]], atol=1e-6)
    (players,) = steps[PLAYER].observations
    expected = [[0.9, 0.5, 0.0, 0.0, 0.4, 0.06, -0.8, -0.6], [0.9, 0.5, 0.0, 0.0, -0.4, 0.06, -0.6, -0.8]]
    np.testing.assert_allclose(players, expected, atol=1e-6)
    seen = [scene.step(acts(0.0, STAY))[KEEPER].observations[0][0, 3] for _ in range(13)]
    assert seen == [0.0] * 12 + [1.0]


def share_stopped(decide: Callable[[Goal], Mapping[str, ActionBatch]]) -> float:
    scene, paid = Goal(copies=64), []
    scene.reset(2)
    for _ in range(300):
        keepers = scene.step(decide(scene))[KEEPER]
        paid += keepers.group_rewards[: keepers.num_terminal].tolist()
    return float(np.mean(paid))


def test_the_expert_stops_every_shot_and_chance_a_third() -> None:
    assert share_stopped(lambda scene: scene.expert()) == 1.0
    assert 0.28 < share_stopped(lambda scene: acts(0.0, STAY, copies=64)) < 0.38
