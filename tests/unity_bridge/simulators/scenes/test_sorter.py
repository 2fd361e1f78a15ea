from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.side_channels import FloatParameter
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scenes.sorter import (
    BEHAVIOR,
    CLOCKWISE,
    COUNTERCLOCKWISE,
    TOUCH,
    Sorter,
)
from unity_bridge.specs import DimensionProperty
from unity_bridge.steps import ActionBatch, StepBatch

NUMBER, SINE, COSINE, TOUCHED = range(4)


def with_tiles(count: float, agents: int = 4, academy: Academy | None = None) -> Sorter:
    academy = academy or Academy()
    academy.parameters.set(FloatParameter("num_tiles", count))
    return Sorter(agents, academy)


def steps_to(tile: np.ndarray, count: int) -> int:
    """How many places clockwise a tile is, from −count/2 to count/2."""
    return round(float(np.arctan2(tile[SINE], tile[COSINE])) * count / (2 * np.pi))


def sort(steps: StepBatch) -> ActionBatch:
    """Goes the shorter way to the smallest number that is left, and touches it."""
    choices = []
    for entities in steps.observations[0]:
        tiles = entities[entities.any(axis=1)]
        left = tiles[tiles[:, TOUCHED] == 0]
        away = steps_to(left[left[:, NUMBER].argmin()], len(tiles))
        choices.append([TOUCH if away == 0 else CLOCKWISE if away > 0 else COUNTERCLOCKWISE])
    return ActionBatch(np.zeros((len(steps), 0), np.float32), np.array(choices, np.int32))


def choose(*choices: int) -> dict[str, ActionBatch]:
    return {
        BEHAVIOR: ActionBatch(np.zeros((len(choices), 0), np.float32), np.array(choices, np.int32)[:, None])
    }


@pytest.mark.parametrize("count", [2, 13])
def test_the_best_policy_touches_every_tile_on_the_shorter_ways(play, count: int) -> None:
    scene = with_tiles(count)
    first = with_tiles(count).reset(0)[BEHAVIOR].observations[0]
    expected = []
    for entities in first:
        tiles = entities[:count]
        places = [steps_to(tile, count) % count for tile in tiles[tiles[:, NUMBER].argsort()]]
        turns = np.abs(np.diff([0, *places]))
        expected.append(count - 0.01 * (count + np.minimum(turns, count - turns).sum()))
    episodes = play(scene, sort, steps=20 * 12)
    for agent, ended in episodes.items():
        return_, decisions, terminated = ended[0]
        assert return_ == pytest.approx(expected[agent], abs=1e-4)
        assert return_ == pytest.approx(count - 0.01 * decisions, abs=1e-4)
        assert terminated


def test_a_wrong_tile_costs_one_and_ends_the_episode() -> None:
    scene = with_tiles(2, agents=40)
    steps = scene.reset(0)[BEHAVIOR]
    here = steps.observations[0][:, :2, COSINE] > 0
    smallest = steps.observations[0][:, :2, NUMBER].argmin(axis=1)
    right = here[np.arange(40), smallest]
    steps = scene.step(choose(*[TOUCH] * 40))[BEHAVIOR]
    assert 0 < right.sum() < 40
    assert steps.agent_ids[: steps.num_terminal].tolist() == np.flatnonzero(~right).tolist()
    assert steps.terminated[: steps.num_terminal].all()
    np.testing.assert_allclose(steps.rewards[: steps.num_terminal], -1.01)
    waiting = steps.rewards[steps.num_terminal :]
    np.testing.assert_allclose(waiting, np.where(right, 0.99, 0))


def test_a_tile_can_be_touched_once() -> None:
    scene = with_tiles(5, agents=60)
    steps = scene.reset(1)[BEHAVIOR]
    assert steps.allowed_actions.all()
    steps = scene.step(choose(*[TOUCH] * 60))[BEHAVIOR]
    waiting = slice(steps.num_terminal, None)
    touched = np.setdiff1d(steps.agent_ids, steps.agent_ids[: steps.num_terminal])
    assert len(touched)
    np.testing.assert_array_equal(
        steps.allowed_actions[waiting], [[True, True, agent not in touched] for agent in range(60)]
    )
    again = scene.step(choose(*[TOUCH if agent in touched else CLOCKWISE for agent in range(60)]))[BEHAVIOR]
    assert again.num_terminal == 0
    np.testing.assert_allclose(again.rewards, -0.01)


@pytest.mark.parametrize("count", [2, 20])
def test_only_as_many_rows_are_used_as_there_are_tiles(count: int) -> None:
    tiles = with_tiles(count, agents=50).reset(0)[BEHAVIOR].observations[0]
    assert tiles.shape == (50, 20, 4)
    assert not tiles[:, count:].any()
    numbers = np.rint(tiles[:, :count, NUMBER] * 20).astype(int)
    assert all(len(set(row)) == count for row in numbers.tolist())
    assert set(numbers.ravel().tolist()) == set(range(1, 21))
    np.testing.assert_allclose((tiles[:, :count, SINE : COSINE + 1] ** 2).sum(axis=2), 1, rtol=1e-5)


@pytest.mark.parametrize(("asked", "given"), [(-1.0, 2), (0.0, 2), (2.9, 2), (1e30, 20), (20.0, 20)])
def test_an_impossible_number_of_tiles_becomes_the_nearest(asked: float, given: int) -> None:
    tiles = with_tiles(asked).reset(0)[BEHAVIOR].observations[0]
    assert tiles.any(axis=2).sum(axis=1).tolist() == [given] * 4


def test_the_tiles_are_declared_as_of_variable_length() -> None:
    (spec,) = Sorter().behaviors.values()
    tiles, feeling = spec.observation_specs
    assert tiles.dimension_property == (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
    assert tiles.is_entities
    assert feeling.dimension_property == (DimensionProperty.NONE,)
