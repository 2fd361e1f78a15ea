from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.switch import BEST_TEAM_RETURNS, DOWN, STAY, Switch
from unity_bridge.simulators.scene import choices
from unity_bridge.steps import StepBatch

FOUR = "0000 3020 3030 3230 3030 3130 2032 0001 0001 0101 0101 0100 0101 0100 0200"
"""An optimal plan; the digits are what agents 0 to 3 do, those at home included."""


def told_by(scene: Switch, actions: Sequence[int]) -> StepBatch:
    (behavior,) = scene.behaviors
    return scene.step({behavior: choices(np.array(actions))})[behavior]


def team_rewards(scene: Switch) -> list[float]:
    """The team's rewards, step by step, in the episode that its expert plays."""
    (behavior,) = scene.behaviors
    agents = len(scene.reset()[behavior])
    earned: list[float] = []
    while True:
        steps = scene.step(scene.expert())[behavior]
        earned.append(float(steps.rewards.sum()))
        if steps.num_terminal and len(steps) - steps.num_terminal == agents:
            return earned


def test_four_agents_change_sides_in_fifteen_steps() -> None:
    golden = [-0.4] * 6 + [4.7, 4.8] + [-0.2] * 4 + [4.9, -0.1, 5.0]
    assert team_rewards(Switch(4, copies=1)) == pytest.approx(golden)
    scene = Switch(4, copies=1)
    scene.reset()
    alive = [0, 1, 2, 3]
    for step, (digits, reward) in enumerate(zip(FOUR.split(), golden, strict=True)):
        steps = told_by(scene, [int(digits[agent]) for agent in alive])
        assert steps.rewards.sum() == pytest.approx(reward), step
        alive = steps.agent_ids[steps.num_terminal :].tolist()


@pytest.mark.parametrize("agents", [2, 3, 4])
def test_the_expert_plays_the_optimum_again_and_again(agents: int) -> None:
    scene = Switch(agents, copies=3)
    for _ in range(2):
        assert sum(team_rewards(scene)) == pytest.approx(3 * BEST_TEAM_RETURNS[agents])


@pytest.mark.parametrize(
    ("view", "first", "second"),
    [
        ({}, [[0, 0.17], [0, 0.83]], [[0.5, 0.17], [0, 0.83]]),
        ({"clock": True}, [[0, 0.17, 0], [0, 0.83, 0]], [[0.5, 0.17, 0.02], [0, 0.83, 0.02]]),
        ({"full_view": True}, [[0, 0.17, 0, 0.83]] * 2, [[0.5, 0.17, 0, 0.83]] * 2),
        (
            {"clock": True, "full_view": True},
            [[0, 0.17, 0, 0, 0.83, 0]] * 2,
            [[0.5, 0.17, 0.02, 0, 0.83, 0.02]] * 2,
        ),
    ],
)
def test_options_decide_what_agents_observe(
    view: dict[str, bool], first: list[list[float]], second: list[list[float]]
) -> None:
    scene = Switch(2, copies=1, **view)
    (behavior,) = scene.behaviors
    np.testing.assert_allclose(scene.reset()[behavior].observations[0], first)
    np.testing.assert_allclose(told_by(scene, [DOWN, STAY]).observations[0], second, rtol=1e-6)
