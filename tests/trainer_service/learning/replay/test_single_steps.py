"""The single steps that targets look at, against what the buffer's own samples add up and plain lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numbered_lives import SPEC, lives, lives_of_group
from replayed import gathered

from trainer_service.learning.replay.joint_transitions import JointReplay
from trainer_service.learning.replay.single_steps import SingleSteps
from trainer_service.learning.replay.transitions import TransitionReplay
from trainer_service.learning.rollout.trajectories import GroupIndex, Trajectories

GAMMA = 0.5


def table(steps: SingleSteps, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers seen at each place; −1 where there is no step."""
    filled = np.full(shape, -1.0)
    filled[steps.places] = steps.observations[0][:, 0]
    return filled


def assert_each_is_one_step(steps: SingleSteps, following: dict[int, float], ends: set[int]) -> None:
    """Asserts that all columns of a step are of it. following: what is seen after each; ends: steps of true ends."""
    numbers = steps.observations[0][:, 0]
    assert steps.next_observations[0][:, 0].tolist() == [following[int(number)] for number in numbers]
    np.testing.assert_array_equal(steps.task_rewards, numbers)
    np.testing.assert_allclose(steps.continuous_actions[:, 0], numbers / 10)
    np.testing.assert_array_equal(steps.discrete_actions[:, 0], numbers % 2)
    assert {int(number) for number in numbers[steps.terminated]} == ends & set(numbers.astype(int))


def test_agents_alone_look_ahead_to_the_end_of_their_segment() -> None:
    replay = TransitionReplay(SPEC, 100, n_step=3, gamma=GAMMA)
    replay.add(lives([4, 1], [True, False]))
    rows = np.array([0, 2, 3, 4])
    steps = replay.single_steps(rows, 3)
    assert table(steps, (3, 4)).T.tolist() == [[0, 1, 2], [2, 3, -1], [3, -1, -1], [4, -1, -1]]
    assert_each_is_one_step(steps, {0: 1, 1: 2, 2: 3, 3: 300, 4: 400}, {3})
    first = replay.single_steps(rows, 1)
    assert table(first, (1, 4)).tolist() == [[0, 2, 3, 4]]
    assert_each_is_one_step(first, {0: 1, 2: 3, 3: 300, 4: 400}, {3})


def joint(**how: Any) -> JointReplay:
    replay = JointReplay(SPEC, 100, num_agents=2, discount=GAMMA, n_step=3, **how)
    replay.add(lives_of_group())
    return replay


FOLLOWING = {0: 1, 1: 2, 2: 3, 3: 300, 4: 400, 5: 6, 6: 600}


def test_an_agent_of_a_group_looks_ahead_over_its_own_steps() -> None:
    for follow in (True, False):  # nobody is ever left out for a tick here, so both are alike
        steps = joint(follow_agents=follow).single_steps(np.arange(4), 3)
        found = table(steps, (3, 4, 2))
        assert found[:, :, 0].T.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, -1], [3, -1, -1]]
        assert found[:, :, 1].T.tolist() == [[4, -1, -1], [-1, -1, -1], [5, 6, -1], [6, -1, -1]]
        assert_each_is_one_step(steps, FOLLOWING, {4})


def test_a_team_looks_ahead_over_everyones_steps() -> None:
    steps = joint(team=True).single_steps(np.arange(4), 3)
    found = table(steps, (3, 4, 2))
    assert found[:, :, 0].T.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, -1], [3, -1, -1]]
    # Also those of an agent that came when another was gone.
    assert found[:, :, 1].T.tolist() == [[4, -1, 5], [-1, 5, 6], [5, 6, -1], [6, -1, -1]]
    assert_each_is_one_step(steps, FOLLOWING, {4})


def odd_lives(seed: int) -> Iterator[Trajectories]:
    """Groups of two whose members are asked at odd ticks, die and run out of time."""
    rng = np.random.default_rng(seed)
    for number in range(12):
        ticks = [np.flatnonzero(rng.random(6) < 0.7) for _ in range(2)]
        there = [agent for agent in range(2) if len(ticks[agent])]
        if there:
            index = GroupIndex(
                groups=np.zeros(len(there), np.int64),
                agent_indices=np.array(there),
                ticks=np.concatenate([ticks[agent] for agent in there]),
                final_ticks=np.array([6 for _ in there]),
                earned=np.full(sum(len(ticks[agent]) for agent in there), np.nan),
                final_earned=np.full(len(there), np.nan),
            )
            ends = [bool(rng.random() < 0.5) for _ in there]
            yield lives([len(ticks[agent]) for agent in there], ends, 20 * number, group_index=index)


@pytest.mark.parametrize(("capacity", "how"), [(9, {}), (200, {"follow_agents": True}), (9, {"team": True})])
def test_rewards_of_groups_add_up_to_those_of_a_sample(capacity: int, how: dict[str, bool]) -> None:
    replay = JointReplay(SPEC, capacity, num_agents=2, discount=GAMMA, n_step=3, **how)
    for trajectories in odd_lives(capacity):
        replay.add(trajectories)
    rows = np.arange(len(replay))
    steps, sample = replay.single_steps(rows, 3), gathered(replay, rows)
    paid = np.zeros((3, len(rows), 2))
    paid[steps.places] = GAMMA**steps.elapsed * steps.task_rewards
    sums = paid.sum(axis=0)
    if "team" in how:
        np.testing.assert_allclose(sums.sum(axis=1), sample.summed_rewards, rtol=1e-6)
    else:
        np.testing.assert_allclose(sums, sample.rewards, rtol=1e-6)
