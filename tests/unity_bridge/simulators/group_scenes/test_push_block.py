from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.push_block import BEHAVIOR, EXPERT_RETURN, PushBlock
from unity_bridge.simulators.group_scenes.push_block_world import (
    DOWN,
    GATE,
    GOAL,
    HEAVY,
    LEFT,
    LIGHT,
    RIGHT,
    STAY,
    UP,
    PushBlockWorld,
)
from unity_bridge.simulators.scene import choices
from unity_bridge.steps import ActionBatch, StepBatch


def room(
    *places: tuple[int, int], blocks: tuple[int, int, int] = (2, 2, 2), heavy: int = 0
) -> PushBlockWorld:
    """One room with agents at these rows and columns, with the trap at row 6, column 3."""
    world = PushBlockWorld(1, len(places))
    world.places[0] = places
    world.alive[:] = True
    world.blocks[0] = blocks
    world.weights[0] = LIGHT
    world.weights[0, heavy] = HEAVY
    world.traps[0] = 6, 3
    return world


def act(world: PushBlockWorld, *actions: int) -> tuple[int, list[bool]]:
    delivered, died = world.advance(np.array([actions]))
    return int(delivered[0]), died[0].tolist()


def test_agents_walk_between_the_walls_and_through_each_other() -> None:
    world = room((0, 0), (0, 1), (6, 6))
    act(world, RIGHT, LEFT, DOWN)
    assert world.places[0].tolist() == [[0, 1], [0, 0], [6, 6]]
    act(world, UP, LEFT, RIGHT)
    assert world.places[0].tolist() == [[0, 1], [0, 0], [6, 6]]
    act(world, STAY, DOWN, UP)
    assert world.places[0].tolist() == [[0, 1], [1, 0], [5, 6]]


def test_a_light_block_moves_for_one_and_the_pusher_follows() -> None:
    world = room((3, 1))
    act(world, RIGHT)
    assert (world.blocks[0].tolist(), world.places[0].tolist()) == ([2, 3, 2], [[3, 2]])


def test_a_heavy_block_moves_only_for_two_at_once() -> None:
    world = room((1, 1), (1, 1), (1, 1))
    act(world, RIGHT, STAY, STAY)
    assert (world.blocks[0, 0], world.places[0].tolist()) == (2, [[1, 1]] * 3)
    act(world, RIGHT, RIGHT, STAY)
    assert (world.blocks[0, 0], world.places[0].tolist()) == (3, [[1, 2], [1, 2], [1, 1]])


@pytest.mark.parametrize(
    ("place", "action"), [((2, 2), DOWN), ((4, 2), UP), ((3, 3), LEFT)], ids=["above", "below", "right"]
)
def test_a_block_is_solid_from_the_other_sides(place: tuple[int, int], action: int) -> None:
    world = room(place)
    act(world, action)
    assert (world.blocks[0, 1], world.places[0].tolist()) == (2, [list(place)])


def test_gate_is_closed_until_an_agent_dies() -> None:
    world = room((3, GATE - 1), (0, GATE), (6, 2), blocks=(2, GATE, 2))
    assert act(world, RIGHT, RIGHT, STAY) == (0, [False] * 3)
    assert world.places[0].tolist() == [[3, GATE - 1], [0, GATE], [6, 2]]
    assert act(world, STAY, STAY, RIGHT) == (0, [False, False, True])
    assert world.alive[0].tolist() == [True, True, False]
    assert act(world, RIGHT, RIGHT, RIGHT) == (0, [False] * 3)
    assert world.places[0, :2].tolist() == [[3, GATE], [0, GATE + 1]]
    assert world.blocks[0, 1] == GATE + 1


def test_trap_kills_only_the_agents_that_reach_it_first() -> None:
    world = room((6, 2), (6, 4), (6, 1))
    assert act(world, RIGHT, LEFT, RIGHT) == (0, [True, True, False])
    assert act(world, STAY, STAY, RIGHT) == (0, [False] * 3)
    assert world.places[0, 2].tolist() == [6, 3]


def test_delivered_block_earns_its_weight_and_is_gone() -> None:
    world = room((1, GATE), (1, GATE), (3, GATE), blocks=(GATE + 1, GATE + 1, 2))
    world.open[:] = True
    assert act(world, RIGHT, RIGHT, RIGHT) == (HEAVY + LIGHT, [False] * 3)
    assert world.delivered[0].tolist() == [True, True, False]
    assert act(world, RIGHT, RIGHT, RIGHT)[0] == 0
    assert world.places[0].tolist() == [[1, GOAL], [1, GOAL], [3, GOAL]]


def episode(decide: Callable[[PushBlock, int], ActionBatch], seed: int = 0) -> tuple[float, int]:
    """The return and the length of a group's first episode."""
    scene, earned = PushBlock(copies=1), []
    steps = scene.reset(seed)[BEHAVIOR]
    while True:
        steps = scene.step({BEHAVIOR: decide(scene, len(steps) - steps.num_terminal)})[BEHAVIOR]
        assert not steps.rewards.any()
        earned.append(float(steps.group_rewards[0]))
        if steps.num_terminal and not steps.group_rewards[steps.num_terminal :].any():
            return sum(earned), len(earned)


def test_the_expert_brings_everything_home() -> None:
    played = [episode(lambda scene, _: scene.expert()[BEHAVIOR], seed) for seed in range(100)]
    for earned, length in played:
        assert earned == pytest.approx(4 - 0.01 * length, abs=1e-3)
    assert np.mean(played, axis=0)[0] == pytest.approx(EXPERT_RETURN, abs=0.015)


def walk_into_the_trap(steps: StepBatch) -> ActionBatch:
    """Everybody: along the first column, then along the row of the trap."""
    down = np.rint(steps.observations[0][steps.num_terminal :, 2] * 6)
    return choices(np.where(down != 0, np.where(down > 0, DOWN, UP), RIGHT))


def test_respawned_agents_return_to_their_group() -> None:
    scene = PushBlock(copies=1, agents_per_copy=3, respawn=4)
    steps = scene.reset(2)[BEHAVIOR]
    while not steps.num_terminal:
        steps = scene.step({BEHAVIOR: walk_into_the_trap(steps)})[BEHAVIOR]
    dead = set(steps.agent_ids[: steps.num_terminal].tolist())
    assert dead < {0, 1, 2}
    for _ in range(3):
        steps = scene.step({BEHAVIOR: choices(np.full(3 - len(dead), STAY))})[BEHAVIOR]
        assert set(steps.agent_ids.tolist()) == {0, 1, 2} - dead
    steps = scene.step({BEHAVIOR: choices(np.full(3 - len(dead), STAY))})[BEHAVIOR]
    assert steps.agent_ids.tolist() == [0, 1, 2]
    back = np.isin(steps.agent_ids, list(dead))
    assert not steps.group_rewards[back].any()
    np.testing.assert_allclose(steps.group_rewards[~back], -0.01)
    assert set(steps.group_ids.tolist()) == {1}
    assert not steps.observations[0][back, 1].any()  # in the first column


def test_observations_are_relative_to_the_agent() -> None:
    scene = PushBlock(copies=1, agents_per_copy=3)
    scene.reset(0)
    world = scene._world
    world.places[0] = [(3, 1), (0, 0), (6, 6)]
    world.blocks[0], world.weights[0], world.traps[0] = (2, 3, 2), (LIGHT, HEAVY, LIGHT), (4, 2)
    world.alive[0, 2] = False
    world.delivered[0, 2] = True
    steps = scene.step({BEHAVIOR: choices(np.full(2, STAY))})[BEHAVIOR]
    blocks = [-2, 1, 0, 6, 0, 2, 6, 6, 0, 0, 0, 0]
    expected = [3, 1, 1, 1, 0, *blocks, -3, -1, 6, 0, 0, 0]
    np.testing.assert_allclose(steps.observations[0][0] * 6, expected, atol=1e-5)
