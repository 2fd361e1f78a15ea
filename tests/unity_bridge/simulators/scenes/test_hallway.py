from __future__ import annotations

import itertools

import numpy as np
import pytest

from unity_bridge.side_channels import Aggregation, FloatParameter, UniformSampler, parse_stat, unpack_records
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import choices
from unity_bridge.simulators.scenes.hallway import (
    BACK,
    BEHAVIOR,
    BEST_RETURN,
    BEST_RETURN_WITHOUT_MEMORY,
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


def guess(steps: StepBatch) -> ActionBatch:
    """The best that can be done without memory: to the circle's goal, whatever the symbol was."""
    hits, _ = rays(steps)
    aside = np.where(hits[:, TO_LEFT] == CIRCLE_GOAL, LEFT, RIGHT)
    return choices(np.where(np.isin(hits[:, TO_LEFT], GOALS), aside, FORWARD))


def everybody(action: int, agents: int = 16) -> dict[str, ActionBatch]:
    return {BEHAVIOR: choices(np.full(agents, action))}


@pytest.mark.parametrize("length", [2, 9, 20])
def test_memory_of_the_symbol_earns_the_best_return(play, length: int) -> None:
    episodes = play(with_length(length), Rememberer(16), steps=4 * (length + 1), seed=length)
    for ended in episodes.values():
        assert ended == [(pytest.approx(1 - 0.01 * (length + 1)), length + 1, True)] * 4


def test_best_return_is_that_of_the_default_length(play) -> None:
    (episode,) = play(Hallway(1), Rememberer(1), steps=10)[0]
    assert episode == (pytest.approx(BEST_RETURN), 10, True)


def test_the_wrong_goal_costs_a_tenth(play) -> None:
    episodes = play(with_length(3), Rememberer(16, rightly=False), steps=4)
    for ended in episodes.values():
        assert ended == [(pytest.approx(-0.14), 4, True)]


@pytest.mark.parametrize("length", [2, 9])
def test_every_way_to_the_goals_forgets_the_symbol(length: int) -> None:
    """Everybody does the same at random; off the first cell, equal goals look equal whatever the symbol is."""
    rng = np.random.default_rng(length)
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


@pytest.mark.parametrize("aside", [*itertools.product((LEFT, RIGHT), repeat=2)])
def test_rules_without_memory_earn_no_more_than_guessing(aside: tuple[int, int]) -> None:
    """All the rules by which goals that look so, or so, can be chosen between return the same in the mean."""
    scene = Hallway(256)
    symbols = rays(scene.reset(1)[BEHAVIOR])[0][:, TO_LEFT]
    for _ in range(9):
        steps = scene.step(everybody(FORWARD, 256))[BEHAVIOR]
    to_left = rays(steps)[0][:, TO_LEFT]
    steps = scene.step({BEHAVIOR: choices(np.array(aside)[to_left - CIRCLE_GOAL])})[BEHAVIOR]
    returns = steps.rewards[: steps.num_terminal] - 0.09
    worlds = [
        returns[(symbols == symbol) & (to_left == goal)].mean()
        for symbol in (CIRCLE_SYMBOL, EX_SYMBOL)
        for goal in GOALS
    ]
    assert np.mean(worlds) == pytest.approx(BEST_RETURN_WITHOUT_MEMORY)
    assert pytest.approx((BEST_RETURN + BEST_RETURN - 1.1) / 2) == BEST_RETURN_WITHOUT_MEMORY


def test_staying_is_interrupted(play) -> None:
    episodes = play(Hallway(3), lambda steps: everybody(STAY, len(steps))[BEHAVIOR], steps=2 * MAX_DECISIONS)
    for ended in episodes.values():
        assert ended == [(pytest.approx(-1.2, abs=1e-4), MAX_DECISIONS, False)] * 2


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


def test_walls_stop_agents() -> None:
    scene = with_length(4, 1)
    first = scene.reset(0)[BEHAVIOR].observations[0]
    for action in (BACK, LEFT, RIGHT, STAY):
        np.testing.assert_array_equal(scene.step(everybody(action, 1))[BEHAVIOR].observations[0], first)
    for _ in range(4):
        there = scene.step(everybody(FORWARD, 1))[BEHAVIOR].observations[0]
    np.testing.assert_array_equal(scene.step(everybody(FORWARD, 1))[BEHAVIOR].observations[0], there)


def test_symbols_and_sides_are_even_and_independent() -> None:
    scene = Hallway(4000)
    symbols = rays(scene.reset(2)[BEHAVIOR])[0][:, TO_LEFT] == CIRCLE_SYMBOL
    for _ in range(9):
        steps = scene.step(everybody(FORWARD, 4000))[BEHAVIOR]
    to_left = rays(steps)[0][:, TO_LEFT] == CIRCLE_GOAL
    shares = np.bincount(2 * symbols + to_left) / 4000
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_the_length_is_read_for_each_episode_of_each_agent() -> None:
    academy = Academy()
    academy.parameters.set(UniformSampler("hallway_length", 1, 3.0, 6.0))
    _, away = rays(Hallway(200, academy).reset(0)[BEHAVIOR])
    assert set(away[:, AHEAD].tolist()) == {4, 5, 6}


@pytest.mark.parametrize(("asked", "given"), [(-3.0, 2), (2.9, 2), (1e30, 20), (20.0, 20)])
def test_an_impossible_length_becomes_the_nearest(asked: float, given: int) -> None:
    _, away = rays(with_length(asked).reset(0)[BEHAVIOR])
    assert set(away[:, AHEAD].tolist()) == {given + 1}


def test_the_goals_are_counted(play) -> None:
    academy = Academy()
    episodes = play(Hallway(30, academy), guess, steps=20)
    returns = [return_ for ended in episodes.values() for return_, _, _ in ended]
    steps = [parse_stat(record.body) for record in unpack_records(academy.outgoing())]
    assert {stat.aggregation for stat in steps} == {Aggregation.SUM}
    for name, count in (
        ("Goal/Correct", np.sum(np.array(returns) > 0)),
        ("Goal/Wrong", np.sum(np.array(returns) < 0)),
    ):
        assert sum(stat.value for stat in steps if stat.name == name) == count > 0


def test_a_picture_shows_the_agent_move() -> None:
    scene = Hallway(3)
    scene.reset(0)
    before = scene.render()
    scene.step(everybody(FORWARD, 3))
    assert before.shape == scene.render().shape == (2 * 72, 2 * 22 * 18, 3)
    assert not np.array_equal(before, scene.render())
