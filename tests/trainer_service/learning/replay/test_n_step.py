"""Transitions over several steps, against sums over plain lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trajectories import trajectories_of
from replayed import gathered

from trainer_service.learning.replay.transitions import TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("a", (1,)),), ActionSpec(0, (2,)))


def trajectories(rewards: list[list[float]], terminated: list[bool], start: int = 0) -> Trajectories:
    """Every step has a number, which is seen; what is seen at an end is the negative number of the last step."""
    paid = np.array([reward for segment in rewards for reward in segment], np.float32)
    lengths = np.array([len(segment) for segment in rewards], np.int64)
    steps, segments = len(paid), len(lengths)
    numbers = (start + np.arange(steps, dtype=np.float32))[:, None]
    last = numbers[np.cumsum(lengths) - 1]
    allowed = np.stack([np.ones(steps, np.bool_), numbers[:, 0] % 2 == 0], axis=1)
    return trajectories_of(
        [numbers],
        lengths.tolist(),
        choices=2,
        allowed_actions=allowed,
        rewards=paid,
        final_observations=(-last - 1.0,),
        final_allowed_actions=np.zeros((segments, 2), np.bool_),
        terminated=np.array(terminated, np.bool_),
    )


def test_rewards_add_up_over_n_steps_or_until_the_end() -> None:
    replay = TransitionReplay(SPEC, 100, n_step=3, gamma=0.5)
    replay.add(trajectories([[1, 2, 4, 8], [16]], [True, False]))
    sample = gathered(replay, np.arange(5))
    # 1 + ½·2 + ¼·4;  2 + ½·4 + ¼·8;  4 + ½·8;  8;  16.
    assert sample.task_rewards.tolist() == [3.0, 6.0, 8.0, 8.0, 16.0]
    assert sample.discounts is not None
    assert sample.discounts.tolist() == [0.125, 0.125, 0.25, 0.5, 0.5]
    assert sample.next_observations[0][:, 0].tolist() == [3.0, -4.0, -4.0, -4.0, -5.0]
    assert sample.terminated.tolist() == [False, True, True, True, False]
    assert sample.observations[0][:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert sample.next_allowed_actions.tolist() == [[True, False], *[[False, False]] * 4]
    assert gathered(replay, np.arange(5)).task_rewards.tolist() == [3.0, 6.0, 8.0, 8.0, 16.0]


segments_of_a_tick = st.lists(
    st.tuples(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=6), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(2, 5), st.lists(segments_of_a_tick, max_size=8))
def test_n_step_sums_hold_wherever_the_buffer_wraps(
    capacity: int, n_step: int, ticks: list[list[tuple[list[float], bool]]]
) -> None:
    replay, reference, number = TransitionReplay(SPEC, capacity, n_step=n_step, gamma=0.5), {}, 0
    for tick in ticks:
        replay.add(trajectories([segment for segment, _ in tick], [end for _, end in tick], number))
        for segment, end in tick:
            for step in range(len(segment)):
                reached = min(n_step, len(segment) - step)
                paid = sum(0.5**k * segment[step + k] for k in range(reached))
                over = step + reached == len(segment)
                after = -float(number + len(segment)) if over else float(number + step + reached)
                reference[number + step] = (paid, 0.5**reached, after, over and end)
            number += len(segment)
    sample = gathered(replay)
    assert sample.discounts is not None
    for row in range(len(replay)):
        found = sample.task_rewards[row], sample.discounts[row], sample.next_observations[0][row, 0]
        expected = reference[int(sample.observations[0][row, 0])]
        assert (*found, bool(sample.terminated[row])) == pytest.approx(expected)
