from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from unity_bridge.side_channels import parse_stat, unpack_records
from unity_bridge.simulators.academy import Academy
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

Policy = Callable[[StepBatch], ActionBatch]


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


def test_agents_in_the_way_stop_a_block() -> None:
    world = room((3, 1), (3, 3))
    act(world, RIGHT, RIGHT)
    assert world.blocks[0, 1] == 2
    act(world, RIGHT, RIGHT)
    assert world.blocks[0, 1] == 3


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


def test_the_dead_neither_push_nor_stand_in_the_way() -> None:
    world = room((1, 1), (1, 1), (1, 3))
    world.alive[0, 1:] = False
    act(world, RIGHT, RIGHT, STAY)
    assert world.blocks[0, 0] == 2
    world.weights[0, 0] = LIGHT
    act(world, RIGHT, STAY, STAY)
    assert world.blocks[0, 0] == 3


def test_delivered_block_earns_its_weight_and_is_gone() -> None:
    world = room((1, GATE), (1, GATE), (3, GATE), blocks=(GATE + 1, GATE + 1, 2))
    world.open[:] = True
    assert act(world, RIGHT, RIGHT, RIGHT) == (HEAVY + LIGHT, [False] * 3)
    assert world.delivered[0].tolist() == [True, True, False]
    assert act(world, RIGHT, RIGHT, RIGHT)[0] == 0
    assert world.places[0].tolist() == [[1, GOAL], [1, GOAL], [3, GOAL]]


def test_order_of_agents_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    world, other, order = PushBlockWorld(30, 5), PushBlockWorld(30, 5), rng.permutation(5)
    world.draw_rooms(np.ones(30, np.bool_), rng)
    world.spawn(np.ones((30, 5), np.bool_), rng)
    other.blocks[:], other.weights[:], other.traps[:] = world.blocks, world.weights, world.traps
    other.places, other.alive = world.places[:, order], world.alive[:, order]
    earned = 0
    for _ in range(150):
        actions = rng.choice([UP, DOWN, LEFT, RIGHT, RIGHT, RIGHT], (30, 5))
        delivered, died = world.advance(actions)
        same, died_too = other.advance(actions[:, order])
        np.testing.assert_array_equal(delivered, same)
        np.testing.assert_array_equal(died[:, order], died_too)
        np.testing.assert_array_equal(world.places[:, order], other.places)
        earned += int(delivered.sum())
    assert earned > 0


class Books:
    """A ledger of groups' rewards and members, from the messages alone."""

    def __init__(self, scene: PushBlock, seed: int = 0) -> None:
        self.scene = scene
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.sizes: list[int] = []
        self.deaths: list[int] = []
        self._open: dict[int, list[float]] = defaultdict(list)
        self._died: dict[int, int] = defaultdict(int)
        self.latest = scene.reset(seed)[BEHAVIOR]
        self._alive = self._living()
        self._size = {group: len(agents) for group, agents in self._alive.items()}

    def _living(self) -> dict[int, set[int]]:
        alive: dict[int, set[int]] = defaultdict(set)
        waiting = slice(self.latest.num_terminal, None)
        pairs = zip(
            self.latest.group_ids[waiting].tolist(), self.latest.agent_ids[waiting].tolist(), strict=True
        )
        for group, agent in pairs:
            alive[group].add(agent)
        return alive

    def play(self, actions: ActionBatch) -> None:
        before = self._alive
        self.latest = steps = self.scene.step({BEHAVIOR: actions})[BEHAVIOR]
        now = self._living()
        ended: dict[int, set[int]] = defaultdict(set)
        earned: dict[tuple[int, int], float] = {}
        for row, (group, agent) in enumerate(
            zip(steps.group_ids.tolist(), steps.agent_ids.tolist(), strict=True)
        ):
            if row < steps.num_terminal:
                ended[group].add(agent)
            earned.setdefault((group, agent), float(steps.group_rewards[row]))
        for group, agents in before.items():
            (reward,) = {round(earned[group, agent], 5) for agent in agents}
            self._open[group].append(reward)
            assert ended[group] <= agents
            if ended[group] == agents:
                self._close(group, now[group])
            else:
                self._died[group] += len(ended[group])
                assert agents - ended[group] <= now[group]
        self._alive = now

    def _close(self, group: int, successors: set[int]) -> None:
        rewards = self._open.pop(group)
        self.returns.append(sum(rewards))
        self.lengths.append(len(rewards))
        self.deaths.append(self._died.pop(group, 0))
        self.sizes.append(self._size[group])
        self._size[group] = len(successors)


@pytest.mark.parametrize(("agents", "seed"), [(3, 0), (4, 1), (4, 2), (9, 3)])
def test_the_expert_brings_everything_home_at_the_price_of_one(agents: int, seed: int) -> None:
    scene = PushBlock(copies=40, agents_per_copy=agents)
    books = Books(scene, seed)
    for _ in range(120):
        books.play(scene.expert()[BEHAVIOR])
    assert len(books.returns) > 150
    np.testing.assert_allclose(books.returns, 4 - 0.01 * np.array(books.lengths), atol=1e-3)
    assert max(books.lengths) < 40
    assert set(books.deaths) == {1}
    assert set(books.sizes) == set(range(max(3, agents // 2), agents + 1))
    if agents == 4:
        assert np.mean(books.returns) == pytest.approx(EXPERT_RETURN, abs=0.01)


def test_group_without_a_death_is_truncated_with_nothing() -> None:
    scene = PushBlock(copies=3, steps=50)
    books = Books(scene)
    for _ in range(50):
        assert not books.latest.num_terminal
        waiting = len(books.latest)
        books.play(choices(np.full(waiting, STAY)))
    assert books.latest.truncated[:waiting].all()
    assert books.returns == pytest.approx([-0.5] * 3)
    assert not books.latest.group_rewards[books.latest.num_terminal :].any()


def test_only_groups_earn_and_random_ones_little() -> None:
    scene, rng = PushBlock(copies=30), np.random.default_rng(0)
    books = Books(scene, seed=5)
    for _ in range(400):
        waiting = len(books.latest) - books.latest.num_terminal
        books.play(choices(rng.integers(5, size=waiting)))
        assert not books.latest.rewards.any()
    assert len(books.returns) >= 120
    assert np.mean(books.returns) < 0


def walk_into_the_trap(steps: StepBatch) -> ActionBatch:
    """Everybody: along the first column, then along the row of the trap."""
    down = np.rint(steps.observations[0][steps.num_terminal :, 2] * 6)
    return choices(np.where(down != 0, np.where(down > 0, DOWN, UP), RIGHT))


def test_the_dead_are_away_until_their_group_begins_anew() -> None:
    scene = PushBlock(copies=5, agents_per_copy=5, steps=30)
    books = Books(scene, seed=1)
    gone: set[int] = set()
    while books.returns == []:
        books.play(walk_into_the_trap(books.latest))
        waiting = set(books.latest.agent_ids[books.latest.num_terminal :].tolist())
        ended = books.latest.terminated[: books.latest.num_terminal]
        if books.returns == []:
            assert ended.all()
            gone |= set(books.latest.agent_ids[: books.latest.num_terminal].tolist())
            assert not gone & waiting
    assert gone
    assert set(books.deaths) >= {1}


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


def test_group_that_dies_at_once_ends_despite_respawning() -> None:
    scene = PushBlock(copies=1, agents_per_copy=3, respawn=2)
    scene.reset(0)
    world = scene._world
    world.places[0] = world.traps[0] + (0, -1)
    steps = scene.step({BEHAVIOR: choices(np.full(3, RIGHT))})[BEHAVIOR]
    assert steps.terminated.tolist() == [True] * 3 + [False] * 3
    np.testing.assert_allclose(steps.group_rewards, [-0.01] * 3 + [0] * 3)


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


def test_the_statistics_tell_of_blocks_deaths_and_sizes() -> None:
    academy = Academy()
    scene = PushBlock(copies=2, agents_per_copy=3, academy=academy)
    scene.reset(0)
    for _ in range(40):
        scene.step(scene.expert())
    stats = [parse_stat(record.body) for record in unpack_records(academy.outgoing())]
    assert {(stat.name, stat.value) for stat in stats} == {
        ("PushBlock/Delivered", 3),
        ("PushBlock/Deaths", 1),
        ("PushBlock/TeamSize", 3),
    }


def test_two_are_too_few() -> None:
    with pytest.raises(ValueError, match="--agents-per-copy: expected 3 agents or more, got 2"):
        PushBlock(agents_per_copy=2)
