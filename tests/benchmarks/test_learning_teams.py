from __future__ import annotations

import numpy as np
import pytest
from learning.program import open_scene
from learning.teams import Group, Sides
from learning.worlds import BEHAVIOR, World

from unity_bridge.simulators.scene import choices
from unity_bridge.steps import ActionBatch

PAIR = World(discrete=1, agents=2)
OTHERS = ("Line?team=1", "Opponent?team=1")


def chosen(*directions: int) -> dict[str, ActionBatch]:
    """One for each agent that waits: 1 or −1."""
    return {BEHAVIOR: choices((np.array(directions) + 1) // 2)}


def begin(told: list[tuple[int, float]] | None = None, agents: int = 2) -> tuple[Group, int]:
    """A group, and where its goal is."""
    scene = Group(
        World(discrete=1, agents=agents),
        lambda steps, return_: told.append((steps, return_)) if told is not None else None,
    )
    batch = scene.reset(seed=1)[BEHAVIOR]
    (sensor,) = batch.observations
    return scene, int(sensor[0, 0])


def test_agents_of_a_group_begin_together_with_one_goal() -> None:
    scene = Group(World(discrete=1, agents=3))
    goals = set()
    for seed in range(10):
        batch = scene.reset(seed)[BEHAVIOR]
        assert batch.agent_ids.tolist() == [0, 1, 2]
        assert batch.group_ids.tolist() == [1, 1, 1]
        assert batch.num_terminal == 0
        shown = {float(number) for number in batch.observations[0][:, 0]}
        assert len(shown) == 1
        goals |= shown
    assert goals == {-1.0, 1.0}


def test_agents_wait_until_the_last_end_is_the_groups_reward() -> None:
    told: list[tuple[int, float]] = []
    scene, goal = begin(told)
    scene.step(chosen(-goal, goal))
    for _ in range(4):
        batch = scene.step(chosen(goal, goal))[BEHAVIOR]
    # Agent 1 is there after five steps; agent 0 went back first and needs seven.
    assert batch.agent_ids.tolist() == [1, 0]
    assert batch.terminated.tolist() == [True, False]
    assert batch.rewards.tolist() == pytest.approx([-0.01, -0.01])
    assert batch.group_rewards.tolist() == [0, 0]
    scene.step(chosen(goal))
    batch = scene.step(chosen(goal))[BEHAVIOR]
    assert batch.agent_ids.tolist() == [0, 0, 1]
    assert batch.terminated.tolist() == [True, False, False]
    assert batch.rewards.tolist() == [0, 0, 0]
    assert batch.group_rewards.tolist() == pytest.approx([1.06, 0, 0])
    # Rewards of ends alone, and steps of all agents.
    assert told == [(10, pytest.approx(1.06)), (12, pytest.approx(1.06))]


def test_a_wrong_end_costs_all_but_the_last_agent_everything() -> None:
    scene, goal = begin()
    scene.step(chosen(-goal, goal))
    for _ in range(4):
        batch = scene.step(chosen(-goal, goal))[BEHAVIOR]
    # Both arrive at once: the last is the one with the larger id.
    assert batch.agent_ids.tolist() == [0, 1, 0, 1]
    assert batch.rewards.tolist() == pytest.approx([-1.06, 0, 0, 0])
    assert batch.group_rewards.tolist() == pytest.approx([0, 1.06, 0, 0])


def test_a_group_that_ended_begins_anew_with_everybody() -> None:
    scene, goal = begin(agents=3)
    for _ in range(5):
        batch = scene.step(chosen(goal, goal, goal))[BEHAVIOR]
    assert (batch.num_terminal, len(batch)) == (3, 6)
    later = scene.step(chosen(1, 1, 1))[BEHAVIOR]
    assert (later.num_terminal, len(later)) == (0, 3)
    assert later.rewards.tolist() == pytest.approx([-0.01] * 3)


@pytest.mark.parametrize("other", OTHERS)
def test_sides_walk_each_on_a_line_of_its_own(other: str) -> None:
    told: list[tuple[int, int, float]] = []
    scene = Sides(World(discrete=1, behaviors=(BEHAVIOR, other)), lambda *each: told.append(each))
    assert list(scene.behaviors) == [BEHAVIOR, other]
    batches = scene.reset(seed=1)
    goals = {name: int(batch.observations[0][0, 0]) for name, batch in batches.items()}
    # The first goes to its goal, the other one away from it.
    there = {BEHAVIOR: goals[BEHAVIOR], other: -goals[other]}
    for _ in range(5):
        batches = scene.step({name: choices(np.array([(way + 1) // 2])) for name, way in there.items()})
    assert batches[BEHAVIOR].rewards.tolist() == pytest.approx([1.06, 0])
    assert batches[other].rewards.tolist() == pytest.approx([-1.06, 0])
    assert told == [(0, 5, pytest.approx(1.02)), (1, 5, pytest.approx(-1.10))]
    ids = np.concatenate([batch.agent_ids for batch in batches.values()])
    assert len(set(ids.tolist())) == 4


def test_sides_have_own_goals_that_a_seed_repeats() -> None:
    def goals(seed: int) -> list[float]:
        scene = Sides(World(discrete=1, behaviors=(BEHAVIOR, OTHERS[0])), lambda *each: None)
        return [float(batch.observations[0][0, 0]) for batch in scene.reset(seed).values()]

    drawn = [tuple(goals(seed)) for seed in range(30)]
    assert len(set(drawn)) == 4
    assert drawn == [tuple(goals(seed)) for seed in range(30)]


@pytest.mark.parametrize(
    ("world", "kind"),
    [
        (World(discrete=1), "Line"),
        (PAIR, "Group"),
        (World(discrete=1, behaviors=(BEHAVIOR, OTHERS[0])), "Sides"),
    ],
)
def test_every_world_has_its_scene_and_says_whose_episode_ended(world: World, kind: str) -> None:
    told: list[tuple[int, int, float]] = []
    scene = open_scene(world, lambda *each: told.append(each))
    assert type(scene).__name__ == kind
    waiting = scene.reset(seed=1)
    while len(told) < 4:
        right = {
            name: choices(np.ones(len(batch) - batch.num_terminal, np.int32))
            for name, batch in waiting.items()
        }
        waiting = scene.step(right)
    assert {side for side, _, _ in told} == set(range(len(world.behaviors)))
    assert scene.render().shape == (40 * max(world.agents, len(world.behaviors)), 220, 3)
