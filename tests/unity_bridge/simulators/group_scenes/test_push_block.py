from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.simulators.group_scenes.push_block import BEHAVIOR, EXPERT_RETURN, PushBlock
from unity_bridge.simulators.group_scenes.push_block_world import (
    GATE,
    HEAVY,
    LEFT,
    LIGHT,
    RIGHT,
    STAY,
    PushBlockWorld,
)
from unity_bridge.simulators.scene import choices


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


def test_a_heavy_block_moves_only_for_two_at_once() -> None:
    world = room((1, 1), (1, 1), (1, 1))
    act(world, RIGHT, STAY, STAY)
    assert (world.blocks[0, 0], world.places[0].tolist()) == (2, [[1, 1]] * 3)
    act(world, RIGHT, RIGHT, STAY)
    assert (world.blocks[0, 0], world.places[0].tolist()) == (3, [[1, 2], [1, 2], [1, 1]])


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


def episode(seed: int) -> tuple[float, int]:
    """The return and the length of the first episode that the expert plays."""
    scene, earned = PushBlock(copies=1), []
    scene.reset(seed)
    while True:
        steps = scene.step(scene.expert())[BEHAVIOR]
        assert not steps.rewards.any()
        earned.append(float(steps.group_rewards[0]))
        if steps.num_terminal and not steps.group_rewards[steps.num_terminal :].any():
            return sum(earned), len(earned)


def test_the_expert_brings_everything_home() -> None:
    played = [episode(seed) for seed in range(100)]
    for earned, length in played:
        assert earned == pytest.approx(4 - 0.01 * length, abs=1e-3)
    assert np.mean(played, axis=0)[0] == pytest.approx(EXPERT_RETURN, abs=0.015)


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
