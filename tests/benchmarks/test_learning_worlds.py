from __future__ import annotations

import numpy as np
import pytest
from learning.demonstrations import record
from learning.lines import Line
from learning.worlds import BEHAVIOR, ENTITIES, ENTITY_SIZE, World

from unity_bridge.demonstrations import open_demonstrations
from unity_bridge.simulators.scene import choices
from unity_bridge.specs import ObservationType
from unity_bridge.steps import ActionBatch

ONE_CHOICE = World(discrete=1)


def seen(batch) -> list[float]:
    """Returns the first number of every row of a batch."""
    (sensor,) = batch.observations
    return sensor[:, 0].tolist()


def play(scene: Line, action: ActionBatch, steps: int):
    """Repeats one action and returns the last batch."""
    for _ in range(steps):
        batch = scene.step({BEHAVIOR: action})[BEHAVIOR]
    return batch


@pytest.mark.parametrize(
    ("world", "best"),
    [
        # Four steps that cost 0.01 and a fifth that ends it; with 0.8 it takes two, with 0.5 too.
        (World(discrete=1), 1.02),
        (World(continuous=1), 1.02),
        (World(discrete=2, step_size=0.8), 1.05),
        (World(continuous=2, discrete=1, step_size=0.5), 1.05),
    ],
)
def test_an_expert_gets_the_best_return(world: World, best: float) -> None:
    told: list[tuple[int, float]] = []
    scene = Line(world, lambda steps, return_: told.append((steps, return_)))
    scene.reset(seed=1)
    while len(told) < 10:
        scene.step(scene.expert())
    assert [return_ for _, return_ in told] == pytest.approx([best] * 10)
    steps = np.array([steps for steps, _ in told])
    assert (np.diff(steps) == steps[0]).all()


def test_who_goes_to_the_wrong_end_loses_as_much() -> None:
    told: list[float] = []
    scene = Line(ONE_CHOICE, lambda steps, return_: told.append(return_))
    goal = seen(scene.reset(seed=1)[BEHAVIOR])[0]
    batch = play(scene, choices(np.array([int(goal < 0)])), 5)
    assert batch.rewards[0] == pytest.approx(-1.06)
    assert told == pytest.approx([-1.10])


def test_one_message_holds_an_end_and_another_agents_beginning() -> None:
    scene = Line(ONE_CHOICE)
    scene.reset(seed=1)
    batch = play(scene, choices(np.array([1])), 5)
    assert batch.terminated.tolist() == [True, False]
    assert batch.agent_ids[0] != batch.agent_ids[1]
    assert batch.rewards[1] == 0


def test_it_ends_when_every_position_is_at_an_end() -> None:
    # The number goes to an end in two steps and stays; the choice goes back and forth, then to the other end.
    scene = Line(World(continuous=1, discrete=1, step_size=0.5))
    scene.reset(seed=1)
    ends = []
    for choice in (1, 0, 0, 0):
        action = ActionBatch(np.array([[1.0]], np.float32), np.array([[choice]], np.int32))
        ends.append(bool(scene.step({BEHAVIOR: action})[BEHAVIOR].num_terminal))
    assert ends == [False, False, False, True]


def test_a_number_moves_no_further_than_a_step() -> None:
    scene = Line(World(continuous=1, step_size=0.3))
    scene.reset(seed=1)
    far = ActionBatch(np.array([[0.9]], np.float32), np.zeros((1, 0), np.int32))
    assert play(scene, far, 3).num_terminal == 0
    assert play(scene, far, 1).num_terminal == 1


def test_a_goal_that_fades_is_seen_for_two_moves() -> None:
    scene = Line(World(discrete=1, fades=True))
    goal = seen(scene.reset(seed=1)[BEHAVIOR])
    forward = choices(np.array([1]))
    later = [seen(scene.step({BEHAVIOR: forward})[BEHAVIOR]) for _ in range(4)]
    assert later == [goal, goal, [0.0], [0.0]]


def test_both_goals_are_drawn_and_a_seed_repeats_them() -> None:
    def goals(seed: int) -> list[float]:
        scene = Line(ONE_CHOICE)
        drawn = seen(scene.reset(seed)[BEHAVIOR])
        while len(drawn) < 20:
            batch = scene.step(scene.expert())[BEHAVIOR]
            drawn += seen(batch)[1:] if batch.num_terminal else []
        return drawn

    assert set(goals(1)) == {-1.0, 1.0}
    assert goals(1) == goals(1)
    assert goals(1) != goals(2)


def test_every_sensor_shows_the_goal_everywhere() -> None:
    world = World(discrete=1, pictures=1, entity_lists=2, goal_sensor=0)
    scene = Line(world)
    batch = scene.reset(seed=1)[BEHAVIOR]
    shapes = [sensor.shape[1:] for sensor in batch.observations]
    assert shapes == [(1,), (3, 20, 20), (ENTITIES, ENTITY_SIZE), (ENTITIES, ENTITY_SIZE)]
    assert len({float(number) for sensor in batch.observations for number in np.unique(sensor)}) == 1
    sensors = scene.behaviors[BEHAVIOR].observation_specs
    assert [sensor.observation_type for sensor in sensors] == [ObservationType.GOAL_SIGNAL, *[0] * 3]
    assert [sensor.is_picture for sensor in sensors] == [False, True, False, False]
    assert [sensor.is_entities for sensor in sensors] == [False, False, True, True]


def test_a_world_survives_its_journey_to_the_simulator() -> None:
    world = World(
        continuous=2,
        pictures=1,
        picture_shape=(3, 36, 36),
        goal_sensor=0,
        fades=True,
        behaviors=("Line?team=0", "Line?team=1"),
    )
    assert World.from_json(world.to_json()) == world
    assert world.names == ["Line"]


@pytest.mark.parametrize("world", [World(discrete=1), World(continuous=1, vectors=0, pictures=1)])
def test_a_recording_shows_the_way_to_what_is_seen(world: World, tmp_path) -> None:
    record(world, tmp_path / "expert.demo", seed=1)
    (file,) = open_demonstrations(tmp_path / "expert.demo")
    episodes = list(file.segments())
    assert sum(map(len, episodes)) == 100
    assert all(episode.terminated for episode in episodes)
    for episode in episodes:
        goal = episode.observations[0].reshape(len(episode), -1)[:, 0]
        done = episode.continuous_actions if world.continuous else 2 * episode.discrete_actions - 1
        np.testing.assert_array_equal(done[:, 0], goal)
