from __future__ import annotations

import itertools

import numpy as np
import pytest

from unity_bridge.side_channels import FloatParameter
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import choices
from unity_bridge.simulators.scenes.hallway import (
    BACK,
    BEHAVIOR,
    CIRCLE_GOAL,
    CIRCLE_SYMBOL,
    EX_GOAL,
    EX_SYMBOL,
    FORWARD,
    LEFT,
    MAX_DECISIONS,
    RIGHT,
    STAY,
    WALL,
    Hallway,
)
from unity_bridge.steps import ActionBatch, StepBatch

ACTIONS = (STAY, FORWARD, BACK, LEFT, RIGHT)
TO_LEFT, LEFT_AHEAD, AHEAD, RIGHT_AHEAD, TO_RIGHT = range(5)
GOALS = (CIRCLE_GOAL, EX_GOAL)


def with_length(length: float, agents: int = 16) -> Hallway:
    academy = Academy()
    academy.parameters.set(FloatParameter("hallway_length", length))
    return Hallway(agents, academy)


def rays(steps: StepBatch) -> tuple[np.ndarray, np.ndarray]:
    """The thing that each ray hits and its distance in cells. Shapes [N, 5]."""
    seen = steps.observations[0].reshape(len(steps), 5, 6)
    np.testing.assert_array_equal(seen[:, :, :5].sum(axis=2), 1)
    return seen[:, :, :5].argmax(axis=2), np.rint(seen[:, :, 5] * 21).astype(int)


class Rememberer:
    """Plays by observations alone, and keeps each agent's symbol in mind."""

    def __init__(self, agents: int, *, rightly: bool = True) -> None:
        self._symbols = np.zeros(agents, np.int64)
        self._rightly = rightly

    def __call__(self, steps: StepBatch) -> ActionBatch:
        hits, _ = rays(steps)
        at_start = np.isin(hits[:, TO_LEFT], (CIRCLE_SYMBOL, EX_SYMBOL))
        self._symbols[steps.agent_ids[at_start]] = hits[at_start, TO_LEFT] - CIRCLE_SYMBOL
        wanted = CIRCLE_GOAL + self._symbols[steps.agent_ids]
        aside = np.where((hits[:, TO_LEFT] == wanted) == self._rightly, LEFT, RIGHT)
        return choices(np.where(np.isin(hits[:, TO_LEFT], GOALS), aside, FORWARD))


def everybody(action: int, agents: int = 16) -> dict[str, ActionBatch]:
    return {BEHAVIOR: choices(np.full(agents, action))}


@pytest.mark.parametrize("length", [2, 20])
def test_memory_of_the_symbol_earns_the_best_return(play, length: int) -> None:
    episodes = play(with_length(length), Rememberer(16), steps=4 * (length + 1), seed=length)
    for ended in episodes.values():
        assert ended == [(pytest.approx(1 - 0.01 * (length + 1)), length + 1, True)] * 4


def test_the_wrong_goal_costs_a_tenth(play) -> None:
    episodes = play(with_length(3), Rememberer(16, rightly=False), steps=4)
    for ended in episodes.values():
        assert ended == [(pytest.approx(-0.14), 4, True)]


def test_every_way_to_the_goals_forgets_the_symbol() -> None:
    """Everybody does the same at random; off the first cell, equal goals look equal whatever the symbol is."""
    length, rng = 9, np.random.default_rng(9)
    scene = with_length(length, 64)
    first, _ = rays(scene.reset(length)[BEHAVIOR])
    steps = [scene.step(everybody(FORWARD, 64))[BEHAVIOR] for _ in range(length)]
    to_left = rays(steps[-1])[0][:, TO_LEFT]
    worlds = set(zip(first[:, TO_LEFT].tolist(), to_left.tolist(), strict=True))
    assert worlds == set(itertools.product((CIRCLE_SYMBOL, EX_SYMBOL), GOALS))
    cell = length
    for _ in range(MAX_DECISIONS - length - 1):
        action = int(rng.choice(ACTIONS if cell < length else (STAY, FORWARD, BACK)))
        cell = min(max(cell + {FORWARD: 1, BACK: -1}.get(action, 0), 0), length)
        seen = scene.step(everybody(action, 64))[BEHAVIOR].observations[0]
        for goal in GOALS:
            assert len(np.unique(seen[to_left == goal], axis=0)) == (2 if cell == 0 else 1)


def test_rays_observe_things_and_their_distances() -> None:
    scene = with_length(3, 1)
    hits, away = rays(scene.reset(0)[BEHAVIOR])
    assert hits[0, AHEAD] == WALL
    assert away.tolist() == [[1, 1, 4, 1, 1]]
    hits, away = rays(scene.step(everybody(FORWARD, 1))[BEHAVIOR])
    assert hits.tolist() == [[WALL] * 5]
    assert away.tolist() == [[1, 1, 3, 1, 1]]
    hits, away = rays(scene.step(everybody(FORWARD, 1))[BEHAVIOR])
    assert {hits[0, LEFT_AHEAD], hits[0, RIGHT_AHEAD]} == set(GOALS)
    ahead = hits[0, [LEFT_AHEAD, RIGHT_AHEAD]].tolist()
    hits, away = rays(scene.step(everybody(FORWARD, 1))[BEHAVIOR])
    assert hits[0, [TO_LEFT, TO_RIGHT]].tolist() == ahead
    assert away.tolist() == [[1] * 5]
    hits, away = rays(scene.step(everybody(LEFT, 1))[BEHAVIOR])
    assert hits[0, TO_RIGHT] == ahead[1]  # the terminal row: from the left goal the other one is seen
    assert away[0].tolist() == [1, 1, 1, 1, 2]
