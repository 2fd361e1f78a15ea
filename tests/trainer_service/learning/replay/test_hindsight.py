"""Goals that are replaced: whose they are, and what the transitions are worth with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from goal_trajectories import OWN_GOAL, SameNumber, goal_spec, goal_trajectories

from trainer_service.errors import ConfigError
from trainer_service.learning.replay.hindsight import HindsightReplay
from trainer_service.learning.replay.transitions import Sample
from unity_bridge.simulators.scene import SceneError
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

ACTIONS = ActionSpec(1, ())
DRAWN = 1000


def replay(capacity: int = 100, number: int = 4, strategy: Any = "future", **task: bool) -> HindsightReplay:
    spec = goal_spec(ACTIONS)
    return HindsightReplay(spec, capacity, n_sampled_goal=number, strategy=strategy, task=SameNumber(**task))


def drawn(buffer: HindsightReplay, count: int = DRAWN) -> tuple[Sample, np.ndarray, np.ndarray]:
    """A sample; the step of each transition with another goal, and the step after which that goal was achieved."""
    sample = buffer.sample(count, np.random.default_rng(7))
    replaced = count * 4 // 5
    steps = sample.observations[2][:replaced, 0]
    return sample, steps, sample.observations[1][:replaced, 0] - 1


def test_four_of_five_transitions_have_another_goal() -> None:
    buffer = replay()
    buffer.add(goal_trajectories([4, 3], ACTIONS))
    sample, _, _ = drawn(buffer)
    own = sample.observations[1][:, 0] == OWN_GOAL
    assert own.sum() == DRAWN // 5
    np.testing.assert_array_equal(sample.observations[1], sample.next_observations[1])
    np.testing.assert_array_equal(sample.task_rewards[own], -1)


@pytest.mark.parametrize(
    ("strategy", "pairs"),
    [
        ("future", {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (3, 3), (3, 4), (4, 4)}),
        ("final", {(0, 2), (1, 2), (2, 2), (3, 4), (4, 4)}),
        ("episode", {(step, goal) for part in ((0, 1, 2), (3, 4)) for step in part for goal in part}),
    ],
)
def test_goals_are_of_steps_of_the_same_trajectory(strategy: str, pairs: set[tuple[int, int]]) -> None:
    buffer = replay(strategy=strategy)
    buffer.add(goal_trajectories([3, 2], ACTIONS))
    _, steps, goals = drawn(buffer)
    assert set(zip(steps.tolist(), goals.tolist(), strict=True)) == pairs


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("added", [[5, 4, 3, 4], [4, 4, 4, 4], [2, 9]])
def test_goals_are_of_the_same_trajectory_where_the_ring_closes(strategy: str, added: list[int]) -> None:
    buffer, first, trajectory = replay(8, strategy=strategy), 0, []
    for number, length in enumerate(added):
        buffer.add(goal_trajectories([length], ACTIONS, first))
        first += length
        trajectory += [number] * length
    _, steps, goals = drawn(buffer)
    of = np.array(trajectory)
    np.testing.assert_array_equal(of[steps.astype(int)], of[goals.astype(int)])
    assert goals.min() >= first - 8
    assert set(steps) == set(range(first - 8, first))
    if strategy == "future":
        assert (goals >= steps).all()
    if strategy == "final":
        assert set(goals) <= set(np.cumsum(added) - 1)


def test_rewards_and_terminations_are_of_the_new_goal() -> None:
    buffer = replay()
    buffer.add(goal_trajectories([3], ACTIONS))
    sample, steps, goals = drawn(buffer)
    reached = goals == steps
    assert 0 < reached.sum() < len(reached)
    np.testing.assert_array_equal(sample.task_rewards[: len(steps)], np.where(reached, 0, -1))
    np.testing.assert_array_equal(sample.terminated[: len(steps)], reached)
    assert not sample.terminated[len(steps) :].any()


def test_a_termination_stays_where_the_environment_has_no_function_for_it() -> None:
    buffer = replay(ends=False)
    buffer.add(goal_trajectories([3, 3], ACTIONS, terminated=[True, False]))
    sample, steps, _ = drawn(buffer)
    np.testing.assert_array_equal(sample.terminated[: len(steps)], steps == 2)


def test_a_termination_that_the_own_goal_does_not_explain_stays() -> None:
    buffer = replay(strategy="episode")
    buffer.add(goal_trajectories([3], ACTIONS, terminated=[True]))  # a fall: the own goal was not achieved
    sample, steps, goals = drawn(buffer)
    np.testing.assert_array_equal(sample.terminated[: len(steps)], (steps == 2) | (goals == steps))


def test_a_termination_by_the_own_goal_is_none_for_another() -> None:
    buffer = replay(strategy="episode")
    trajectories = goal_trajectories([3], ACTIONS, terminated=[True])
    for seen in (trajectories.observations[1], trajectories.final_observations[1]):
        seen[:] = 3
    buffer.add(trajectories)
    sample, steps, goals = drawn(buffer)
    np.testing.assert_array_equal(sample.terminated[: len(steps)], goals == steps)
    np.testing.assert_array_equal(
        sample.terminated[len(steps) :], sample.observations[2][len(steps) :, 0] == 2
    )


def test_each_step_is_held_against_the_reward_function() -> None:
    class Paid(SameNumber):
        def mismatch(self, achieved: np.ndarray, desired: np.ndarray, paid: np.ndarray) -> Exception | None:
            steps.append(np.column_stack([achieved, desired, paid]).tolist())
            return SceneError("python:Env: got 1 where it paid 10") if len(steps) == 2 else None

    steps: list[Any] = []
    spec = goal_spec(ACTIONS)
    buffer = HindsightReplay(spec, 8, n_sampled_goal=4, strategy="future", task=Paid())
    buffer.add(goal_trajectories([2, 1], ACTIONS))
    assert steps == [[[1, OWN_GOAL, -1], [2, OWN_GOAL, -1], [3, OWN_GOAL, -1]]]
    with pytest.raises(ConfigError, match="hindsight: python:Env: got 1 where it paid 10"):
        buffer.add(goal_trajectories([2], ACTIONS))


@pytest.mark.parametrize(
    "sensors",
    [
        {"observation": (2,)},
        {"achieved_goal": (1,), "desired_goal": (2,)},
        {"achieved_goal": (3, 20, 20), "desired_goal": (3, 20, 20)},
    ],
)
def test_a_behavior_without_goals_is_refused(sensors: dict[str, tuple[int, ...]]) -> None:
    spec = BehaviorSpec(tuple(ObservationSpec(*each) for each in sensors.items()), ACTIONS)
    with pytest.raises(ValueError, match="expected the sensors 'achieved_goal' and 'desired_goal'"):
        HindsightReplay(spec, 8, n_sampled_goal=4, strategy="future", task=SameNumber())


def test_a_sample_without_a_reward_function_is_refused() -> None:
    buffer = HindsightReplay(goal_spec(ACTIONS), 8, n_sampled_goal=4, strategy="future", task=None)
    buffer.add(goal_trajectories([3], ACTIONS))
    with pytest.raises(ValueError, match="needs the reward function of a goal environment"):
        buffer.sample(4, np.random.default_rng(1))
