"""Returns of groups, against a slow account by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainer_service.learning.rollout.group_returns import GroupReturns
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import StepBatch

Row = tuple[int, int, float, float]
"""Agent, group, its own reward, its group's."""


def tick(deciding: Sequence[Row], ended: Sequence[Row] = ()) -> StepBatch:
    def rows(given: Sequence[Row], over: bool) -> StepBatch:
        ids, groups, own, shared = np.array(given, float).reshape(-1, 4).T
        batch = step_batch(
            [np.zeros((len(given), 1), np.float32)],
            own.astype(np.float32),
            agent_ids=ids.astype(np.int64),
            terminated=np.full(len(given), over),
        )
        return replace(batch, group_ids=groups.astype(np.int64), group_rewards=shared.astype(np.float32))

    return concatenate(rows(ended, True), rows(deciding, False))


def returns(groups: GroupReturns, *ticks: StepBatch, simulator: int = 0, team: int = 0) -> list[float]:
    found: list[float] = []
    for each in ticks:
        found += groups.observe(simulator, team, each).returns.tolist()
    return found


def test_a_group_earns_its_reward_once_and_its_members_rewards() -> None:
    groups = GroupReturns()
    begin = tick([(1, 7, 99, 99), (2, 7, 99, 99)])  # before any action: nobody's
    middle = tick([(1, 7, 1, 10), (2, 7, 2, 10)])
    end = tick([(1, 7, 99, 99), (2, 7, 99, 99)], ended=[(1, 7, 3, 20), (2, 7, 4, 20)])
    assert returns(groups, begin, middle) == []
    assert returns(groups, end) == [1 + 2 + 3 + 4 + 10 + 20]
    assert returns(groups, middle, end) == [40.0]


def test_an_episode_ends_with_its_last_member_and_counts_all() -> None:
    groups = GroupReturns()
    ticks = [
        tick([(1, 7, 0, 0), (2, 7, 0, 0)]),
        tick([(2, 7, 2, 10)], ended=[(1, 7, 1, 10)]),
        tick([(2, 7, 4, 20)]),
        tick([], ended=[(2, 7, 8, 30)]),
    ]
    assert returns(groups, *ticks[:3]) == []
    assert returns(groups, *ticks[3:]) == [1 + 2 + 4 + 8 + 60]


def test_an_agent_that_comes_back_belongs_to_the_running_episode() -> None:
    groups = GroupReturns()
    ticks = [
        tick([(1, 7, 0, 0), (2, 7, 0, 0)]),
        tick([(1, 7, 0, 0), (2, 7, 2, 10)], ended=[(1, 7, 1, 10)]),
        tick([(1, 7, 100, 20), (2, 7, 4, 20)]),
        tick([], ended=[(2, 7, 8, 0), (1, 7, 16, 0)]),
    ]
    assert returns(groups, *ticks) == [1 + 2 + 100 + 4 + 8 + 16 + 30]


def test_a_group_that_is_left_ends_without_who_left() -> None:
    groups = GroupReturns()
    ticks = [
        tick([(1, 7, 0, 0), (2, 7, 0, 0)]),
        tick([(1, 8, 1, 10), (2, 7, 2, 10)]),  # the reward is of the time in group 7
        tick([(1, 8, 50, 5)], ended=[(2, 7, 4, 20)]),
        tick([(1, 0, 60, 5)]),
    ]
    assert returns(groups, *ticks[:2]) == []
    assert returns(groups, ticks[2]) == [1 + 2 + 4 + 30]
    assert returns(groups, ticks[3]) == [50 + 60 + 10]


def test_a_simulator_that_leaves_takes_its_unfinished_episodes_along() -> None:
    groups = GroupReturns()
    returns(groups, tick([(1, 7, 0, 0)]), tick([(1, 7, 100, 100)]), simulator=0)
    returns(groups, tick([(1, 7, 0, 0)]), tick([(1, 7, 1, 1)]), simulator=1)
    groups.drop(0)
    begin, end = tick([(1, 7, 50, 50)]), tick([], ended=[(1, 7, 1, 2)])
    assert returns(groups, begin, end, simulator=0) == [3.0]
    assert returns(groups, end, simulator=1) == [5.0]


def test_groups_that_never_come_back_leave_nothing_behind() -> None:
    groups = GroupReturns()
    for number in range(1, 400):
        found = returns(
            groups,
            tick([(2 * number, number, 0, 0), (2 * number + 1, number, 0, 0)]),
            tick([], ended=[(2 * number, number, 1, 0), (2 * number + 1, number, 1, 0)]),
        )
        assert found == [2.0]
    assert groups._groups.capacity == 1
    assert groups._agents.capacity == 2
