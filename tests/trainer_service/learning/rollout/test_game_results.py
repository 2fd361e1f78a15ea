"""Results of games, worked by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from trainer_service.learning.rollout.group_returns import GroupReturns, game_results
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import StepBatch


def tick(
    agents: Sequence[int],
    *,
    rewards: Sequence[float] | None = None,
    groups: Sequence[int] | None = None,
    group_rewards: Sequence[float] | None = None,
    truncated: Sequence[int] = (),
    waits: bool = False,
) -> StepBatch:
    ids = np.array(agents, np.int64)
    interrupted = np.isin(ids, truncated)
    nobody = np.zeros(len(ids), np.bool_)
    return step_batch(
        [np.zeros((len(ids), 1), np.float32)],
        np.array(rewards or [0.0] * len(ids), np.float32),
        agent_ids=ids,
        terminated=nobody if waits else ~interrupted,
        truncated=nobody if waits else interrupted,
        group_ids=np.array(groups or [0] * len(ids), np.int64),
        group_rewards=np.array(group_rewards or [0.0] * len(ids), np.float32),
    )


def played(*ticks: StepBatch, team: int = 0) -> list[list[float]]:
    """Results of every tick, of agents that all have acted before."""
    groups = GroupReturns()
    results = []
    for batch in ticks:
        over = groups.observe(0, team, batch)
        results.append(game_results(batch, team, np.arange(batch.num_terminal), over.keys).tolist())
    return results


def test_the_sign_of_an_agents_last_reward_decides() -> None:
    ids = [4, 5, 6]
    assert played(tick(ids, waits=True), tick(ids, rewards=[0.1, -3.0, 0.0])) == [[], [1.0, 0.0, 0.5]]


def test_an_interrupted_game_has_no_result() -> None:
    ids = [4, 5]
    assert played(tick(ids, waits=True), tick(ids, rewards=[1.0, 1.0], truncated=[5])) == [[], [1.0]]


@pytest.mark.parametrize("team", [0, 1])
def test_a_group_plays_one_game_however_many_it_has(team: int) -> None:
    ids, groups = [1, 2, 3, 4, 5], [7, 7, 7, 9, 9]
    begins = tick(ids, groups=groups, waits=True)
    ends = tick(ids, groups=groups, group_rewards=[1, 1, 1, -1, -1], rewards=[0, -0.5, 0, 0, 0.5])
    assert played(begins, ends, team=team) == [[], [1.0, 0.0]]


def test_a_group_plays_on_until_its_last_member_ends() -> None:
    groups = [7, 7, 7]
    begins = tick([1, 2, 3], groups=groups, waits=True)
    death = concatenate(tick([1], groups=[7], rewards=[-5.0]), tick([2, 3], groups=[7, 7], waits=True))
    end = tick([2, 3], groups=[7, 7], group_rewards=[1.0, 1.0])
    assert played(begins, death, end) == [[], [], [1.0]]


def test_a_group_with_an_interrupted_member_has_no_result() -> None:
    groups = [7, 7]
    end = tick([1, 2], groups=groups, group_rewards=[1.0, 1.0], truncated=[2])
    assert played(tick([1, 2], groups=groups, waits=True), end) == [[], []]


def test_a_group_left_for_another_has_no_result() -> None:
    begins = tick([1], groups=[7], waits=True)
    moves = tick([1], groups=[8], group_rewards=[1.0], waits=True)
    assert played(begins, moves) == [[], []]
