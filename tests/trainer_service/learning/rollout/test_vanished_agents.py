"""Agents that vanish without a word: what becomes of what they did, and of their rows."""

from __future__ import annotations

import numpy as np
import pytest
import ticking as ticks
from behavior_worlds import observe

from trainer_service.learning.rollout import agents, assembler
from trainer_service.learning.rollout.agent_indices import _FreeIndices
from trainer_service.learning.rollout.agents import (
    CROWD_SIZE,
    MAX_AGENTS,
    MAX_SILENT_AGENTS,
    MAX_SILENT_TICKS,
    MAX_SILENT_TICKS_IN_CROWD,
    AgentRows,
    TooManyAgents,
    vanished_agents,
)
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.errors import WireError
from unity_bridge.steps import StepBatch


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> int:
    """Agents may be silent for so many ticks, and every tick looks for them."""
    monkeypatch.setattr(agents, "MAX_SILENT_TICKS", 3)
    monkeypatch.setattr(agents, "_CHECK_EVERY", 1)
    return 3


def tick(ids: list[int], *, clock: float = 0.0, ended: int = 0, groups: list[int] | int = 0) -> StepBatch:
    """Agents that see 100 times their number and the clock, and earn the clock; the first so many have ended."""
    seen = [100.0 * agent + clock for agent in ids]
    return ticks.tick(ids, seen, clock, terminated=ended, groups=groups)


class Driver(ticks.Driver):
    def __init__(self, *, by_group: bool = False) -> None:
        super().__init__(memory_size=1, by_group=by_group)


def test_everybody_is_waited_for_who_may_only_be_slow() -> None:
    assert not vanished_agents(np.array([0, 1, MAX_SILENT_TICKS]), mentioned=1).any()
    assert vanished_agents(np.array([0, 1, MAX_SILENT_TICKS + 1]), mentioned=1).tolist() == [
        False,
        False,
        True,
    ]
    in_turns = np.arange(CROWD_SIZE) * (MAX_SILENT_TICKS // CROWD_SIZE)
    assert not vanished_agents(in_turns, mentioned=1).any()


def test_a_crowd_of_silent_agents_is_waited_for_less_long() -> None:
    silent = np.full(CROWD_SIZE + 1, MAX_SILENT_TICKS_IN_CROWD + 1)
    silent[:10] = MAX_SILENT_TICKS_IN_CROWD
    gone = vanished_agents(silent, mentioned=10)
    assert not gone[:10].any()
    assert gone[10:].all()
    assert not vanished_agents(silent, mentioned=len(silent) // 4 + 1).any()


def test_beyond_the_limit_the_longest_silent_make_room() -> None:
    silent = np.concatenate([np.zeros(100, np.int64), np.arange(1, MAX_SILENT_AGENTS + 2) % 200 + 1])
    assert not vanished_agents(silent[:-1], mentioned=100).any()
    gone = vanished_agents(silent, mentioned=100)
    assert not gone[:100].any()
    assert np.count_nonzero(gone) == MAX_SILENT_AGENTS // 4 + 1
    assert silent[gone].min() >= silent[~gone].max() >= 140
    assert not vanished_agents(np.zeros(MAX_AGENTS + 5, np.int64), mentioned=MAX_AGENTS + 5).any()
    assert vanished_agents(np.array([1, *[0] * MAX_AGENTS]), mentioned=MAX_AGENTS).tolist().index(True) == 0


def test_a_vanished_agent_leaves_its_steps_but_the_last(impatient: int) -> None:
    drive = Driver()
    for clock in (1, 2, 3):
        drive(tick([5, 7], clock=clock))
    found = [drive(tick([5], clock=4 + i)) for i in range(impatient + 1)]
    assert [each.trajectories is None for each in found] == [True] * impatient + [False]
    last, segment = found[-1], found[-1].trajectories
    assert segment is not None
    # The action at clock 3 had a consequence that nobody saw: what was seen then is where to bootstrap from.
    assert segment.observations[0][:, 0].tolist() == [701, 702]
    assert segment.rewards.tolist() == [2, 3]
    assert segment.final_observations[0][:, 0].tolist() == [703]
    assert segment.final_memories.tolist() == [[702]]
    assert segment.memories.tolist() == [[0], [701]]
    assert not segment.terminated.any()
    assert last.episodes is None
    assert last.vanished is not None
    assert last.vanished.tolist() == [7]
    assert drive.assembler._agents.in_use == 1


def test_who_comes_back_begins_anew(impatient: int) -> None:
    drive = Driver()
    drive(tick([5, 7], clock=1))
    for clock in range(2, 10):
        drive(tick([5], clock=clock))
    drive(tick([5, 7], clock=10))
    observed = drive(tick([7, 5], clock=11, ended=1))
    assert observed.episodes is not None
    assert observed.episodes.returns.tolist() == [11]
    assert observed.trajectories is not None
    assert observed.trajectories.observations[0][:, 0].tolist() == [710]
    assert observed.trajectories.memories.tolist() == [[0]]


def test_a_team_that_waits_for_its_turn_is_not_silent(impatient: int) -> None:
    drive = Driver()
    drive(tick([1], clock=1), team=0)
    drive(tick([1], clock=1), team=1)
    for clock in range(2, 20):
        assert drive(tick([1], clock=clock), team=0).vanished is None
    observed = drive(tick([1], clock=20, ended=1), team=1)
    assert observed.trajectories is not None
    assert len(observed.trajectories) == 1


def test_a_group_that_vanishes_is_handed_out_as_one(impatient: int) -> None:
    drive = Driver(by_group=True)
    for clock in (1, 2):
        drive(tick([1, 2, 3], clock=clock, groups=[8, 8, 9]))
    found = [drive(tick([3], clock=3 + i, groups=[9])) for i in range(impatient + 1)]
    segment = found[-1].trajectories
    assert segment is not None
    assert segment.group_index is not None
    assert segment.group_index.groups.tolist() == [0, 0]
    assert segment.group_index.agent_indices.tolist() == [0, 1]
    assert segment.group_index.ticks.tolist() == [1, 1]
    assert segment.group_index.final_ticks.tolist() == [2, 2]
    groups = drive.assembler._groups
    assert groups is not None
    assert (groups._groups.in_use, groups._waiting) == (1, {})
    assert drive.allocator is not None
    assert len(drive.allocator._free_indices) == 1


def test_who_vanished_from_a_group_waits_for_the_others(impatient: int) -> None:
    drive = Driver(by_group=True)
    for clock in (1, 2):
        drive(tick([1, 2], clock=clock, groups=[8, 8]))
    for clock in range(3, 3 + impatient + 2):
        assert drive(tick([2], clock=clock, groups=[8])).trajectories is None
    segment = drive(tick([2], clock=20, ended=1, groups=[8])).trajectories
    assert segment is not None
    assert sorted(segment.lengths.tolist()) == [1, 7]


def test_a_groups_episode_ends_without_who_vanished(impatient: int, make_behavior) -> None:
    behavior = make_behavior(continuous=1, branches=(3,))
    ticks = [tick([1, 2], clock=clock, groups=[8, 8]) for clock in (0, 10)]
    ticks += [tick([1], groups=[8])] * (impatient + 2)
    for each in (*ticks, tick([1], clock=5, ended=1, groups=[8])):
        observe(behavior, BehaviorTick(0, 0, each))
        behavior.collector.act()
    assert behavior.returns.drain() == [10.0 + 10.0 + 5.0]


def test_rows_of_vanished_agents_are_given_back() -> None:
    """Rows of later agents, the highest ones, are given back too."""
    drive, at_home = Driver(), [1, 2, 3]
    drive(tick(at_home))
    drive(tick(list(range(6000))), simulator=1)
    for clock in range(5):
        drive(tick([7, 8], clock=clock), simulator=2)
    assert len(drive.assembler._lengths) > 6000
    for _ in range(MAX_SILENT_TICKS_IN_CROWD + 64):
        drive(tick([0]), simulator=1)
        drive.assembler.tidy()
    assert drive.assembler._agents.in_use == 6
    assert len(drive.assembler._lengths) <= 64
    observed = drive(tick([7, 8], clock=5, ended=2), simulator=2)
    assert observed.episodes is not None
    assert observed.episodes.lengths.tolist() == [5, 5]
    assert observed.trajectories is not None
    assert observed.trajectories.observations[0][:, 0].tolist() == [
        100 * agent + clock for agent in (7, 8) for clock in range(5)
    ]
    before = [
        [0.0],
        *observed.trajectories.observations[0][:4],
        [0.0],
        *observed.trajectories.observations[0][5:9],
    ]
    np.testing.assert_array_equal(observed.trajectories.memories, before)


def test_members_moved_to_lower_rows_stay_in_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_FEW", 1)
    drive = Driver(by_group=True)
    drive(tick(list(range(100, 150)), groups=[9] * 50))
    for clock in (1, 2):
        drive(tick([1, 2], clock=clock, groups=[8, 8]), simulator=1)
    drive(tick(list(range(100, 150)), ended=50, groups=[9] * 50))
    drive.assembler.tidy()
    assert drive.assembler._agents.capacity == 2
    drive(tick([1], clock=3, ended=1, groups=[8]), simulator=1)
    segment = drive(tick([2], clock=3, ended=1, groups=[8]), simulator=1).trajectories
    assert segment is not None
    assert segment.lengths.tolist() == [2, 2]
    assert segment.group_index is not None
    assert segment.group_index.groups.tolist() == [0, 0]


def test_a_message_of_too_many_agents_is_refused(make_behavior) -> None:
    behavior = make_behavior(name="Walker", continuous=1)
    crowd = np.arange(2 * MAX_AGENTS + 1)
    batch = StepBatch(
        crowd, (np.zeros((len(crowd), 1), np.float32),), np.zeros(len(crowd), np.float32),
        *(np.zeros(len(crowd), np.bool_),) * 2, np.ones((len(crowd), 0), np.bool_),
        np.zeros(len(crowd), np.int64), np.zeros(len(crowd), np.float32),
    )  # fmt: skip
    with pytest.raises(
        WireError, match=f"'Walker': expected at most {MAX_AGENTS} agents .* a message of {len(crowd)} rows"
    ):
        observe(behavior, BehaviorTick(0, 0, batch))


def test_too_many_agents_are_refused_across_messages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (agents, assembler):
        monkeypatch.setattr(module, "MAX_AGENTS", 100)
    drive = Driver()
    drive(tick(list(range(100))), team=0)
    with pytest.raises(TooManyAgents, match="expected at most 100 agents in one simulator, got 101"):
        drive(tick([1]), team=1)
    drive.assembler.drop(0)
    assert drive.assembler._agents.in_use == 0
    for first in range(0, 1000, 50):  # one after the other there may be any number
        drive(tick(list(range(first, first + 50))))


def test_rows_in_use_move_down_where_most_are_free() -> None:
    table = AgentRows()
    table.assign(0, np.arange(2000))
    rows = table.assign(1, np.array([5, 9]))
    assert table.compact() is None
    table.release(0, np.arange(1, 2000))
    had, have = table.compact() or pytest.fail("nobody moved")
    assert (had.tolist(), have.tolist()) == (rows.tolist(), [1, 2])
    assert table.find(1, np.array([5, 9])).tolist() == [1, 2]
    assert table.find(0, np.array([0])).tolist() == [0]
    assert table.capacity == 3
    assert table.assign(2, np.array([1])).tolist() == [3]


def test_the_lowest_free_index_is_taken() -> None:
    free_indices = _FreeIndices()
    assert [free_indices.take() for _ in range(4)] == [0, 1, 2, 3]
    free_indices.free(2)
    free_indices.free(0)
    assert [free_indices.take() for _ in range(3)] == [0, 2, 4]
    for index in range(5):
        assert not free_indices.is_unused
        free_indices.free(index)
    assert free_indices.is_unused
