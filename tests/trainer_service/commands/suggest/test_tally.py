"""What a tally makes of agents that act: episodes, groups, rewards and hidden state."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.commands.suggest.tally import Tally
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch, join_batches

SPEC = BehaviorSpec((ObservationSpec("vector", (1,)),), ActionSpec(discrete_branches=(2,)))


def batch(ids, seen, *, rewards=0.0, ended="", groups=0, group_rewards=0.0) -> StepBatch:
    n = len(ids)
    flags = np.full(n, True), np.full(n, False)
    return StepBatch(
        agent_ids=np.array(ids),
        observations=(np.array(seen, np.float32).reshape(n, 1),),
        rewards=np.broadcast_to(np.float32(rewards), n).copy(),
        terminated=flags[ended != "terminated"],
        truncated=flags[ended != "truncated"],
        allowed_actions=np.ones((n, 2), bool),
        group_ids=np.broadcast_to(np.int64(groups), n).copy(),
        group_rewards=np.broadcast_to(np.float32(group_rewards), n).copy(),
    )


def both(ended: StepBatch, waiting: StepBatch) -> StepBatch:
    """One message with rows that ended and rows that wait."""
    sensors = tuple(
        np.concatenate(pair) for pair in zip(ended.observations, waiting.observations, strict=True)
    )
    allowed = np.concatenate([ended.allowed_actions, waiting.allowed_actions])
    return join_batches([ended, waiting], sensors, allowed)


def act(tally: Tally, rows: StepBatch, action: int = 0) -> None:
    waiting = len(rows) - rows.num_terminal
    chosen = np.full((waiting, 1), action, np.int32)
    tally.add(0, rows, ActionBatch(np.zeros((waiting, 0), np.float32), chosen))


def test_episodes_have_lengths_and_kinds_of_ends() -> None:
    tally = Tally("Agent", SPEC)
    act(tally, batch([1, 2], [0.0, 0.0]))
    act(tally, both(batch([1], [1.0], rewards=2.0, ended="terminated"), batch([1, 2], [0.0, 1.0])))
    act(tally, both(batch([2], [2.0], ended="truncated"), batch([1, 2], [0.0, 0.0])))
    found = tally.features()
    assert found.episodes == 2
    assert found.length == 1.5
    assert found.longest == 2
    assert found.truncated == 0.5
    assert found.agents == 2


def test_an_unfinished_episode_gives_the_length_where_none_ended() -> None:
    tally = Tally("Agent", SPEC)
    for _ in range(8):
        act(tally, batch([1], [0.0]))
    found = tally.features()
    assert (found.episodes, found.longest) == (0, 7)


def test_the_most_frequent_reward_is_no_event() -> None:
    tally = Tally("Agent", SPEC)
    act(tally, batch([1], [0.0]))
    for reward in (-0.1, -0.1, -0.1):
        act(tally, batch([1], [0.0], rewards=reward))
    act(tally, both(batch([1], [0.0], rewards=1.0, ended="terminated"), batch([1], [0.0])))
    found = tally.features()
    assert found.density == pytest.approx(0.25)
    assert found.events == 1.0
    assert found.reward_scale == pytest.approx(np.sqrt(1.03 / 4), rel=1e-4)
    assert found.mean_reward == pytest.approx(0.7 / 4)
    assert not found.survival


def test_a_positive_reward_until_a_terminal_end_means_survival() -> None:
    tally = Tally("Agent", SPEC)
    act(tally, batch([1], [0.0]))
    act(tally, batch([1], [0.0], rewards=1.0))
    act(tally, both(batch([1], [0.0], rewards=1.0, ended="terminated"), batch([1], [0.0])))
    assert tally.features().survival


def aliased_of(first: list[float], paid: list[float], groups: int = 0) -> float:
    """What ten agents tell whose second observation is the same, and whose reward for the second action is ``paid``."""
    tally = Tally("Agent", SPEC)
    for _ in range(4):
        act(tally, batch([*range(10)], first, groups=groups))
        act(tally, batch([*range(10)], [5.0] * 10, groups=groups))
        ended = batch([*range(10)], [9.0] * 10, rewards=np.array(paid), ended="terminated", groups=groups)
        act(tally, ended)
    return tally.features().aliased


def test_rewards_that_depend_on_the_first_observation_need_memory() -> None:
    assert aliased_of([0.0, 1.0] * 5, [1.0, -1.0] * 5) > 0.5


def test_rewards_that_depend_on_nothing_seen_need_no_memory() -> None:
    assert aliased_of([0.0] * 10, [1.0, -1.0] * 5) < 0.1


def test_rewards_that_follow_from_the_observation_need_no_memory() -> None:
    assert aliased_of([0.0, 1.0] * 5, [1.0] * 10) < 0.1


def test_rewards_that_depend_on_other_agents_of_the_group_may_need_memory() -> None:
    assert aliased_of([0.0] * 10, [1.0, -1.0] * 5, groups=1) > 0.5


def test_groups_have_a_size_and_rewards_in_common() -> None:
    tally = Tally("Agent", SPEC)
    act(tally, batch([1, 2, 3, 4], [0.0] * 4, groups=np.array([1, 1, 2, 2])))
    paid = np.array([1.0, 1.0, -1.0, -1.0])
    act(tally, batch([1, 2, 3, 4], [0.0] * 4, groups=np.array([1, 1, 2, 2]), group_rewards=paid))
    found = tally.features()
    assert found.group_size == 2
    assert found.shared_rewards > 0.9
    assert not found.members_leave


def test_an_agent_that_ends_before_its_group_leaves() -> None:
    tally = Tally("Agent", SPEC)
    act(tally, batch([1, 2], [0.0] * 2, groups=1))
    act(tally, both(batch([1], [0.0], groups=1, ended="terminated"), batch([2], [0.0], groups=1)))
    assert tally.features().members_leave


def test_observations_have_a_scale() -> None:
    tally = Tally("Agent", SPEC)
    act(tally, batch([1, 2], [20.0, -20.0]))
    found = tally.features()
    assert found.observation_scale == pytest.approx(20.0)
    assert not found.is_binary
