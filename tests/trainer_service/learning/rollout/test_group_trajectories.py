"""Agents of a group: indices, complete group trajectories, and what happened at the same time.

Observations are 100·agent + clock.
"""

from __future__ import annotations

import numpy as np
import pytest
import ticking as ticks

from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.assembler import Observed
from trainer_service.learning.rollout.joint_steps import find_joint_steps
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.steps import StepBatch

Row = tuple[int, int]
"""An agent and its group."""


def tick(
    clock: int, waiting: list[Row], *, terminated: list[Row] = (), truncated: list[Row] = ()
) -> StepBatch:
    ids, groups = np.array([*terminated, *truncated, *waiting]).T
    counts = {"terminated": len(terminated), "truncated": len(truncated)}
    return ticks.tick(ids, (100 * ids + clock).tolist(), 1.0, groups=groups, **counts)


class World(ticks.Driver):
    def __init__(self, horizon: int = 1000) -> None:
        super().__init__(horizon, by_group=True)


def handed_out(observed: Observed) -> Trajectories:
    assert observed.trajectories is not None
    return observed.trajectories


def seen(trajectories: Trajectories, numbers: np.ndarray) -> list[list[float | None]]:
    """Returns the observations that the numbers of joint steps stand for."""
    everything = [*trajectories.observations[0][:, 0], *trajectories.final_observations[0][:, 0]]
    return [[None if i < 0 else float(everything[i]) for i in row] for row in numbers.tolist()]


PAIR = [(1, 5), (2, 5)]


def test_a_group_at_its_time_limit_is_one_trajectory() -> None:
    world = World()
    world(tick(0, PAIR))
    world(tick(1, PAIR))
    out = handed_out(world(tick(2, PAIR, truncated=PAIR)))
    joint_steps = find_joint_steps(out, 2)
    assert seen(out, joint_steps.members) == [[100, 200], [101, 201], [102, 202]]
    assert seen(out, joint_steps.steps) == [[100, 200], [101, 201], [None, None]]
    assert joint_steps.first.tolist() == [0]
    assert joint_steps.lengths.tolist() == [2]
    assert joint_steps.last.tolist() == [2]
    assert joint_steps.in_time().tolist() == [0, 1]


def test_after_the_end_of_a_task_nothing_follows() -> None:
    world = World()
    world(tick(0, PAIR))
    out = handed_out(world(tick(1, PAIR, terminated=PAIR)))
    joint_steps = find_joint_steps(out, 2)
    assert joint_steps.last.tolist() == [-1]
    assert joint_steps.of_final.tolist() == [-1, -1]
    assert seen(out, joint_steps.members) == [[100, 200]]


def test_who_dies_early_waits_for_the_others() -> None:
    world = World()
    world(tick(0, PAIR))
    assert world(tick(1, [(2, 5)], terminated=[(1, 5)])).trajectories is None
    world(tick(2, [(2, 5)]))
    out = handed_out(world(tick(3, [], truncated=[(2, 5)])))
    joint_steps = find_joint_steps(out, 2)
    assert seen(out, joint_steps.members) == [[100, 200], [None, 201], [None, 202], [None, 203]]
    assert joint_steps.lengths.tolist() == [3]
    assert joint_steps.last.tolist() == [3]


def test_an_agent_that_leaves_is_not_taken_for_its_successor() -> None:
    world = World()
    world(tick(0, PAIR))
    assert world(tick(1, [(1, 5), (3, 5)], truncated=[(2, 5)])).trajectories is None
    out = handed_out(world(tick(2, [], truncated=[(1, 5), (3, 5)])))
    joint_steps = find_joint_steps(out, 2)
    assert seen(out, joint_steps.members) == [[100, 200], [101, 301], [101, 201], [102, 302]]
    assert seen(out, joint_steps.steps) == [[100, 200], [101, 301], [None, None], [None, None]]
    of_final = joint_steps.members[joint_steps.of_final, joint_steps.agent_of_segment].tolist()
    assert of_final == [len(out) + segment for segment in range(3)]
    assert (joint_steps.lengths.tolist(), joint_steps.last.tolist()) == ([2], [3])


def test_a_group_is_cut_when_one_segment_reaches_the_horizon() -> None:
    world = World(horizon=2)
    world(tick(0, [(1, 5)]))
    world(tick(1, PAIR))
    out = handed_out(world(tick(2, PAIR)))
    assert out.lengths.tolist() == [2, 1]
    joint_steps = find_joint_steps(out, 2)
    assert seen(out, joint_steps.members) == [[100, None], [101, 201], [102, 202]]
    world(tick(3, PAIR))
    again = handed_out(world(tick(4, PAIR)))
    assert seen(again, find_joint_steps(again, 2).members) == [[102, 202], [103, 203], [104, 204]]


def test_an_agent_that_ends_between_its_cut_and_the_groups_belongs_to_the_next_trajectory() -> None:
    world = World(horizon=2)
    world(tick(0, [(1, 5), (2, 5), (3, 5)]))
    world(tick(1, PAIR))
    assert world(tick(2, PAIR)).trajectories is None  # two are cut, and the third has not reported yet
    first = handed_out(world(tick(3, [(2, 5), (3, 5)], terminated=[(1, 5)])))
    assert first.lengths.tolist() == [2, 2, 1]
    second = handed_out(world(tick(4, [(2, 5), (3, 5)])))
    assert seen(second, find_joint_steps(second, 3).steps)[:2] == [[102, 202, None], [None, 203, 303]]


def test_group_trajectories_of_different_records_stay_apart() -> None:
    world = World()
    world(tick(0, PAIR))
    first = handed_out(world(tick(1, PAIR, truncated=PAIR)))
    second = handed_out(world(tick(2, PAIR, truncated=PAIR)))
    both = Trajectories.concatenate([first, second])
    joint_steps = find_joint_steps(both, 2)
    assert seen(both, joint_steps.members) == [[100, 200], [101, 201], [101, 201], [102, 202]]
    assert joint_steps.lengths.tolist() == [1, 1]
    assert joint_steps.last.tolist() == [1, 3]


def test_who_changes_the_group_is_cut_there() -> None:
    world = World()
    world(tick(0, [(1, 5), (2, 5), (3, 6)]))
    assert world(tick(1, [(1, 6), (2, 5), (3, 6)])).trajectories is None
    out = handed_out(world(tick(2, [(1, 6), (3, 6)], truncated=[(2, 5)])))
    joint_steps = find_joint_steps(out, 2)
    assert seen(out, joint_steps.steps) == [[100, 200], [None, 201], [None, None]]
    out = handed_out(world(tick(3, [], truncated=[(1, 6), (3, 6)])))
    joint_steps = find_joint_steps(out, 2)
    # Agent 3 was there first, and keeps its index.
    assert seen(out, joint_steps.members) == [[300, None], [301, 101], [302, 102], [303, 103]]


def test_a_newcomer_takes_the_lowest_free_index() -> None:
    allocator = AgentIndexAllocator()
    trio = [(7, 5), (8, 5), (9, 5)]
    assert allocator.assign(0, 0, tick(0, trio)).agent_indices.tolist() == [0, 1, 2]
    # An agent that dies is told the index that it had.
    assert allocator.assign(0, 0, tick(1, [(7, 5), (9, 5)], terminated=[(8, 5)])).agent_indices.tolist() == [
        1,
        0,
        2,
    ]
    assert allocator.assign(0, 0, tick(2, [(7, 5), (9, 5), (12, 5)])).agent_indices.tolist() == [0, 2, 1]


def test_a_group_that_is_too_large_is_named() -> None:
    world = World()
    world(tick(0, PAIR))
    out = handed_out(world(tick(1, PAIR, truncated=PAIR)))
    with pytest.raises(ValueError, match="a group of 2 agents, expected at most 1"):
        find_joint_steps(out, 1)
