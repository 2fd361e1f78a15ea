"""Trajectories from ticks. Observations tell agent and time: 100·agent + clock."""

from __future__ import annotations

import numpy as np
import pytest
from ticking import Driver, tick

from trainer_service.learning.rollout.trajectories import OnPolicyBuffer, Trajectories


def segments(trajectories: Trajectories | None) -> list[dict]:
    """Each trajectory on its own."""
    if trajectories is None:
        return []
    ends = np.cumsum(trajectories.lengths)
    return [
        {
            "seen": trajectories.observations[0][start:end, 0].tolist(),
            "rewards": trajectories.rewards[start:end].tolist(),
            "final": float(trajectories.final_observations[0][segment, 0]),
            "terminated": bool(trajectories.terminated[segment]),
        }
        for segment, (start, end) in enumerate(zip(ends - trajectories.lengths, ends, strict=True))
    ]


def test_rewards_belong_to_the_action_before_them() -> None:
    drive = Driver()
    drive(tick([7], [0], [55]))  # the first message's reward belongs to no action
    drive(tick([7], [1], [10]))
    observed = drive(tick([7], [2], [20], terminated=1))
    assert segments(observed.trajectories) == [
        {"seen": [0, 1], "rewards": [10, 20], "final": 2, "terminated": True}
    ]
    assert observed.episodes is not None
    assert observed.episodes.returns.tolist() == [30]
    assert observed.episodes.lengths.tolist() == [2]


def test_agents_that_swap_rows_keep_their_own_rewards() -> None:
    drive = Driver()
    drive(tick([1, 2], [100, 200], [0, 0]))
    drive(tick([2, 1], [201, 101], [20, 10]))
    observed = drive(tick([1, 2], [102, 202], [11, 21], terminated=2))
    assert segments(observed.trajectories) == [
        {"seen": [100, 101], "rewards": [10, 11], "final": 102, "terminated": True},
        {"seen": [200, 201], "rewards": [20, 21], "final": 202, "terminated": True},
    ]


def test_an_episode_may_begin_in_the_message_that_ends_another() -> None:
    drive = Driver()
    drive(tick([1], [0], [0]))
    observed = drive(tick([1, 1], [9, 50], [3, 99], terminated=1))
    assert segments(observed.trajectories) == [{"seen": [0], "rewards": [3], "final": 9, "terminated": True}]
    observed = drive(tick([1], [51], [4], truncated=1))
    # The reward that came with the first decision of the new episode (99) is nobody's.
    assert segments(observed.trajectories) == [
        {"seen": [50], "rewards": [4], "final": 51, "terminated": False}
    ]
    assert observed.episodes is not None
    assert observed.episodes.returns.tolist() == [4]


def test_a_horizon_cuts_the_trajectory_but_not_the_episode() -> None:
    drive = Driver(horizon=2)
    drive(tick([1], [0], [0]))
    drive(tick([1], [1], [10]))
    cut = drive(tick([1], [2], [20]))
    assert segments(cut.trajectories) == [
        {"seen": [0, 1], "rewards": [10, 20], "final": 2, "terminated": False}
    ]
    assert cut.episodes is None
    end = drive(tick([1], [3], [30], terminated=1))
    assert segments(end.trajectories) == [{"seen": [2], "rewards": [30], "final": 3, "terminated": True}]
    assert end.episodes is not None
    assert end.episodes.returns.tolist() == [60]
    assert end.episodes.lengths.tolist() == [3]


def test_a_segment_says_whether_the_episode_was_over_after_it() -> None:
    drive = Driver(horizon=2)
    drive(tick([1, 2, 3], [0, 0, 0], [0, 0, 0]))
    drive(tick([1, 2, 3], [1, 1, 1], [0, 0, 0]))
    observed = drive(tick([1, 2, 3], [2, 2, 2], [0, 0, 0], terminated=1, truncated=1))
    assert observed.trajectories is not None
    assert observed.trajectories.ended is not None
    assert observed.trajectories.ended.tolist() == [True, True, False]
    assert observed.trajectories.terminated.tolist() == [True, False, False]
    cut = observed.trajectories.select(np.array([False, True, True]))
    assert cut.ended is not None
    assert cut.ended.tolist() == [True, False]


def test_a_lost_simulator_takes_its_unfinished_segments_with_it() -> None:
    drive = Driver()
    drive(tick([1], [0], [0]), simulator=0)
    drive(tick([1], [500], [0]), simulator=1)
    drive.assembler.drop(0)
    assert drive(tick([1], [1], [1], terminated=1), simulator=0).trajectories is None
    other = drive(tick([1], [501], [2], terminated=1), simulator=1)
    assert segments(other.trajectories) == [{"seen": [500], "rewards": [2], "final": 501, "terminated": True}]


def test_group_rewards_are_kept_apart_from_own_ones() -> None:
    drive = Driver()
    drive(tick([1], [0], [0]))
    trajectories = drive(tick([1], [1], [2], terminated=1, group_rewards=[7])).trajectories
    assert trajectories is not None
    assert trajectories.rewards.tolist() == [2]
    assert trajectories.group_rewards.tolist() == [7]


@pytest.mark.parametrize("horizon", [1, 3, 64, 1000])
def test_random_lives_equal_a_plain_dictionary(horizon: int) -> None:
    """Hundreds of ticks with agents that come, go, skip and shuffle, against one list per agent."""
    rng = np.random.default_rng(horizon)
    drive = Driver(horizon=horizon)
    open_segments: dict[int, list[tuple[float, float]]] = {}
    pending: dict[int, float] = {}
    expected, got = [], []
    clock = 0.0

    def finish(agent: int, final: float, terminated: bool) -> None:
        steps = open_segments.pop(agent)
        expected.append(
            {
                "seen": [seen for seen, _ in steps],
                "rewards": [reward for _, reward in steps],
                "final": final,
                "terminated": terminated,
            }
        )

    for _ in range(400):
        present = rng.permutation(12)[: rng.integers(0, 12)].tolist()
        ended = [agent for agent in present if agent in pending and rng.random() < 0.1]
        n_terminated = int(rng.integers(0, len(ended) + 1))
        deciding = [agent for agent in present if agent not in ended or rng.random() < 0.5]
        ids = ended + deciding
        seen = [clock := clock + 1 for _ in ids]
        rewards = rng.integers(-5, 5, size=len(ids)).astype(float).tolist()
        for row, agent in enumerate(ids):
            if agent in pending:
                open_segments.setdefault(agent, []).append((pending.pop(agent), rewards[row]))
                if row < len(ended):
                    finish(agent, seen[row], row < n_terminated)
                elif len(open_segments[agent]) == horizon:
                    finish(agent, seen[row], False)
            if row >= len(ended):
                pending[agent] = seen[row]
        batch = tick(ids, seen, rewards, terminated=n_terminated, truncated=len(ended) - n_terminated)
        got += segments(drive(batch).trajectories)
    assert len(expected) > 100
    assert sorted(got, key=lambda segment: segment["seen"]) == sorted(
        expected, key=lambda segment: segment["seen"]
    )


def test_a_buffer_drains_everything_in_order_of_arrival() -> None:
    drive, buffer = Driver(), OnPolicyBuffer()
    for start in (0, 10):
        drive(tick([1], [start], [0]))
        trajectories = drive(tick([1], [start + 1], [start], terminated=1)).trajectories
        assert trajectories is not None
        buffer.add(trajectories)
    assert len(buffer) == 2
    assert [segment["seen"] for segment in segments(buffer.peek())] == [[0], [10]]
    assert [segment["seen"] for segment in segments(buffer.drain())] == [[0], [10]]
    assert len(buffer) == 0
    assert buffer.peek() is None
    with pytest.raises(ValueError, match="nothing was collected"):
        buffer.drain()
