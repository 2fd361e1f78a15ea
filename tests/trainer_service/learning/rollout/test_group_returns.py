"""Returns of groups, against a slow account by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from trainer_service.learning.rollout.group_returns import GroupReturns, GroupTick
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


def test_members_may_decide_at_different_ticks() -> None:
    groups = GroupReturns()
    ticks = [
        tick([(1, 7, 0, 0), (2, 7, 0, 0)]),
        tick([(1, 7, 1, -10)]),
        tick([(1, 7, 1, -20)]),
        tick([], ended=[(1, 7, 1, -5), (2, 7, 0, -35)]),  # the second hears of all at once
    ]
    assert returns(groups, *ticks) == [3 - 35]


def test_agents_of_no_group_have_none() -> None:
    groups = GroupReturns()
    assert returns(groups, tick([(1, 0, 0, 0)]), tick([], ended=[(1, 0, 5, 5)])) == []
    mixed = [tick([(1, 0, 0, 0), (2, 7, 0, 0)]), tick([], ended=[(1, 0, 5, 0), (2, 7, 1, 2)])]
    assert returns(groups, *mixed) == [3.0]


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


def test_groups_are_told_apart_by_simulator_team_and_id() -> None:
    groups = GroupReturns()
    begin, end = tick([(1, 7, 0, 0)]), tick([], ended=[(1, 7, 1, 0)])
    positions = [(0, 0), (1, 0), (1, 1)]
    for simulator, team in positions:
        assert returns(groups, begin, simulator=simulator, team=team) == []
    for simulator, team in positions:
        assert returns(groups, end, simulator=simulator, team=team) == [1.0]


def test_a_simulator_that_leaves_takes_its_unfinished_episodes_along() -> None:
    groups = GroupReturns()
    returns(groups, tick([(1, 7, 0, 0)]), tick([(1, 7, 100, 100)]), simulator=0)
    returns(groups, tick([(1, 7, 0, 0)]), tick([(1, 7, 1, 1)]), simulator=1)
    groups.drop(0)
    begin, end = tick([(1, 7, 50, 50)]), tick([], ended=[(1, 7, 1, 2)])
    assert returns(groups, begin, end, simulator=0) == [3.0]
    assert returns(groups, end, simulator=1) == [5.0]


def test_episodes_are_numbered_as_they_begin() -> None:
    groups = GroupReturns()
    groups.observe(0, 0, tick([(1, 9, 0, 0), (2, 4, 0, 0), (3, 9, 0, 0)]))
    assert groups.begun == 2
    assert groups.observe(0, 0, tick([(2, 4, 0, 0)], ended=[(2, 4, 0, 0)])).numbers.tolist() == [1]
    both = groups.observe(0, 0, tick([], ended=[(1, 9, 0, 0), (2, 4, 0, 0), (3, 9, 0, 0)]))
    assert sorted(both.numbers.tolist()) == [0, 2]


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


@dataclass
class SlowAccount:
    """Returns of groups, one row at a time."""

    members: dict[int, int] = field(default_factory=dict)
    totals: dict[int, float] = field(default_factory=dict)

    def observe(self, batch: StepBatch) -> list[float]:
        ended: list[float] = []
        shared_seen: set[int] = set()
        columns = (batch.agent_ids, batch.group_ids, batch.rewards, batch.group_rewards)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        for i, (agent, group, own, shared) in enumerate(rows):
            if agent in self.members:
                assert self.members[agent] == group
                self.totals[group] += own
                if group not in shared_seen:
                    self.totals[group] += shared
                    shared_seen.add(group)
                if i < batch.num_terminal:
                    del self.members[agent]
            if i == batch.num_terminal - 1:
                for over in [g for g in self.totals if g not in self.members.values()]:
                    ended.append(self.totals.pop(over))
        for agent, group, _, _ in rows[batch.num_terminal :]:
            if agent not in self.members and group:
                self.members[agent] = group
                self.totals.setdefault(group, 0.0)
        return sorted(ended)


@pytest.mark.parametrize("seed", range(5))
def test_chance_finds_no_difference_to_the_slow_account(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups, slow = GroupReturns(), SlowAccount()
    size, count = 4, 30
    alive = np.zeros((count, size), np.bool_)
    found = 0
    for _ in range(150):
        shared = random.normal(size=count).round(3)
        dies = alive & (random.random(alive.shape) < 0.2)
        # A group begins anew when all are dead; now and then one of the dead comes back earlier.
        comes = (~(alive & ~dies).any(axis=1))[:, None] | (random.random(alive.shape) < 0.03)
        order = random.permutation(count * size)

        def rows(which: np.ndarray, shared: np.ndarray = shared, order: np.ndarray = order) -> list[Row]:
            flat = which.ravel()
            return [
                (agent, 1 + agent // size, round(random.normal(), 3), shared[agent // size])
                for agent in order.tolist()
                if flat[agent]
            ]

        stays = alive & ~dies
        batch = tick(rows(stays | comes), ended=rows(dies))
        alive = stays | comes
        ours: GroupTick = groups.observe(0, 0, batch)
        np.testing.assert_allclose(sorted(ours.returns), slow.observe(batch), rtol=1e-5, atol=1e-4)
        found += len(ours)
    assert found > 50
