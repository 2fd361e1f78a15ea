from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.switch import (
    BEST_TEAM_RETURNS,
    DOWN,
    HOMES,
    LEFT,
    MAP,
    RIGHT,
    STARTS,
    STAY,
    UP,
    Switch,
)
from unity_bridge.simulators.scene import choices
from unity_bridge.steps import ActionBatch, StepBatch

FOUR = "0000 3020 3030 3230 3030 3130 2032 0001 0001 0101 0101 0100 0101 0100 0200"
"""An optimal plan; the digits are what agents 0 to 3 do, those at home included."""


class Referee:
    """The rules of Switch, written down for one copy and one agent at a time."""

    def __init__(self, agents: int, copy: int, limit: int = 50) -> None:
        self.ids = [copy * agents + agent for agent in range(agents)]
        self.limit = limit
        self.start()

    def start(self) -> None:
        self.places = list(STARTS[: len(self.ids)])
        self.home = [False] * len(self.ids)
        self.steps = 0

    def step(
        self, chosen: Mapping[int, int]
    ) -> tuple[list[tuple[int, float, bool]], list[tuple[int, float]]]:
        """Makes a step. Returns (agent, reward, is home) of those that ended, (agent, reward) of those that wait."""
        self.steps += 1
        rewards = {}
        for agent, name in enumerate(self.ids):
            if self.home[agent]:
                continue
            there = self.leads(self.places[agent], chosen[name])
            if there not in self.places:
                self.places[agent] = there
            self.home[agent] = self.places[agent] == HOMES[agent]
            rewards[agent] = 5.0 if self.home[agent] else -0.1
        over = all(self.home) or self.steps == self.limit
        ended = [(self.ids[i], r, self.home[i]) for i, r in rewards.items() if over or self.home[i]]
        if over:
            self.start()
            return ended, [(name, 0.0) for name in self.ids]
        return ended, [(self.ids[i], r) for i, r in rewards.items() if not self.home[i]]

    @staticmethod
    def leads(place: tuple[int, int], action: int) -> tuple[int, int]:
        down, right = {DOWN: (1, 0), LEFT: (0, -1), UP: (-1, 0), RIGHT: (0, 1), STAY: (0, 0)}[action]
        row, column = place[0] + down, place[1] + right
        free = 0 <= row < 3 and 0 <= column < 7 and MAP[row][column] == "."
        return (row, column) if free else place


def told_by(scene: Switch, actions: Sequence[int] | ActionBatch) -> StepBatch:
    (behavior,) = scene.behaviors
    batch = actions if isinstance(actions, ActionBatch) else choices(np.array(actions))
    return scene.step({behavior: batch})[behavior]


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


@pytest.mark.parametrize("agents", [2, 3, 4])
def test_many_copies_follow_the_rules_as_each_alone_would(agents: int) -> None:
    scene, rng = Switch(agents, copies=20, steps=30), np.random.default_rng(agents)
    referees = [Referee(agents, copy, 30) for copy in range(20)]
    (behavior,) = scene.behaviors
    steps = scene.reset()[behavior]
    homecomings = 0
    for _ in range(400):
        waiting = steps.agent_ids[steps.num_terminal :].tolist()
        # Rather to the other side than anywhere, or hardly anybody would come home.
        wanted = np.where(np.array(waiting) % agents % 2 == 0, RIGHT, LEFT)
        actions = np.where(rng.random(len(waiting)) < 0.4, wanted, rng.integers(5, size=len(waiting)))
        steps = told_by(scene, choices(actions))
        chosen = dict(zip(waiting, actions.tolist(), strict=True))
        ends, waits = zip(*(referee.step(chosen) for referee in referees), strict=True)
        ended, rest = [row for rows in ends for row in rows], [row for rows in waits for row in rows]
        assert steps.agent_ids.tolist() == [row[0] for row in ended] + [row[0] for row in rest]
        np.testing.assert_allclose(steps.rewards, [row[1] for row in ended] + [row[1] for row in rest])
        assert steps.terminated[: steps.num_terminal].tolist() == [row[2] for row in ended]
        np.testing.assert_array_equal(steps.group_ids, steps.agent_ids // agents + 1)
        homecomings += sum(row[2] for row in ended)
    assert homecomings > 20


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
