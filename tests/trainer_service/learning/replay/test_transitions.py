"""The buffer against a plain list of transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from replayed import gathered

from trainer_service.learning.replay.transitions import Sample, TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("a", (2,)), ObservationSpec("b", (1, 2, 2))), ActionSpec(1, (2, 3)))


def trajectories(
    lengths: list[int], start: float = 0.0, ends: list[bool] | None = None, pictures: type = np.float32
) -> Trajectories:
    """Every step has a number of its own, which all its columns tell; a final observation has the last one's + 0.5."""
    steps, segments = sum(lengths), len(lengths)
    numbers = start + np.arange(steps)
    last = numbers[np.cumsum(lengths) - 1] + 0.5 if segments else np.empty(0)

    def seen(values: np.ndarray) -> tuple[Any, ...]:
        vector = np.stack([values, -values], axis=1).astype(np.float32)
        scale = 1.0 if pictures is np.float32 else 2.0
        picture = np.broadcast_to((scale * values)[:, None, None, None] % 256, (len(values), 1, 2, 2))
        return vector, picture.astype(pictures)

    return Trajectories(
        observations=seen(numbers),
        continuous_actions=numbers[:, None].astype(np.float32) / 10,
        discrete_actions=np.stack([numbers % 2, numbers % 3], axis=1).astype(np.int64),
        allowed_actions=(numbers[:, None] % np.array([2, 3, 4, 5, 6]) == 0),
        log_probs=np.zeros(steps, np.float32),
        memories=np.zeros((steps, 0), np.float32),
        rewards=numbers.astype(np.float32),
        group_rewards=np.full(steps, 1000.0, np.float32),
        lengths=np.array(lengths, np.int64),
        final_observations=seen(last),
        final_allowed_actions=(np.floor(last)[:, None] % np.array([7, 8, 9, 10, 11]) == 0),
        final_memories=np.zeros((segments, 0), np.float32),
        terminated=np.array(ends if ends is not None else [False] * segments, np.bool_),
    )


def everything(replay: TransitionReplay) -> Sample:
    sample: Sample = gathered(replay)
    return sample


def as_set(sample: Sample) -> set[tuple[float, ...]]:
    """Observations, next ones and ends of a sample, after a check that all columns are of one step."""
    seen, following = sample.observations[0], sample.next_observations[0]
    np.testing.assert_array_equal(sample.observations[1][:, 0, 0, 0], seen[:, 0])
    np.testing.assert_array_equal(sample.next_observations[1][:, 0, 1, 1], following[:, 0])
    np.testing.assert_array_equal(sample.task_rewards, seen[:, 0] + 1000)
    np.testing.assert_allclose(sample.continuous_actions[:, 0], seen[:, 0] / 10, rtol=1e-6)
    np.testing.assert_array_equal(sample.discrete_actions[:, 1], seen[:, 0] % 3)
    np.testing.assert_array_equal(sample.allowed_actions[:, 2], seen[:, 0] % 4 == 0)
    final = following[:, 0] % 1 > 0
    expected = np.where(final, np.floor(following[:, 0]) % 7 == 0, following[:, 0] % 2 == 0)
    np.testing.assert_array_equal(sample.next_allowed_actions[:, 0], expected)
    return set(zip(seen[:, 0].tolist(), following[:, 0].tolist(), sample.terminated.tolist(), strict=True))


segments_of_a_tick = st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=0, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.lists(segments_of_a_tick, max_size=12))
def test_it_holds_the_newest_transitions_and_what_came_after_each(
    capacity: int, ticks: list[list[tuple[int, bool]]]
) -> None:
    replay, reference = TransitionReplay(SPEC, capacity), []
    number = 0.0
    for tick in ticks:
        lengths, ends = [length for length, _ in tick], [end for _, end in tick]
        replay.add(trajectories(lengths, number, ends))
        for length, end in tick:
            for step in range(length):
                last = step == length - 1
                reference.append((number, number + (0.5 if last else 1.0), last and end))
                number += 1
        assert as_set(everything(replay)) == set(reference[-capacity:])
        assert len(replay) == min(capacity, len(reference))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 20),
    st.integers(1, 30),
    st.lists(segments_of_a_tick, max_size=8),
    st.lists(segments_of_a_tick, max_size=4),
)
def test_a_saved_state_continues_in_a_buffer_of_any_size(
    before: int, after: int, ticks: list[list[tuple[int, bool]]], later: list[list[tuple[int, bool]]]
) -> None:
    saved, fresh, number = TransitionReplay(SPEC, before), TransitionReplay(SPEC, after), 0.0
    reference: list[tuple[float, float, bool]] = []

    def live(replay: TransitionReplay, tick: list[tuple[int, bool]]) -> None:
        nonlocal number
        replay.add(trajectories([length for length, _ in tick], number, [end for _, end in tick]))
        for length, end in tick:
            for step in range(length):
                last = step == length - 1
                reference.append((number, number + (0.5 if last else 1.0), last and end))
                number += 1

    for tick in ticks:
        live(saved, tick)
    fresh.load_state({name: array.copy() for name, array in saved.state().items()})
    kept = reference[-min(before, after) :] if reference else []
    assert as_set(everything(fresh)) == set(kept)
    reference = list(kept)
    for tick in later:
        live(fresh, tick)
    assert as_set(everything(fresh)) == set(reference[-after:])


def test_pictures_stay_bytes_and_are_kept_once() -> None:
    replay = TransitionReplay(SPEC, 4096)
    for start in range(0, 4096, 512):
        replay.add(trajectories([64] * 8, start, pictures=np.uint8))
    sample = replay.sample(32, np.random.default_rng(1))
    assert sample.observations[1].dtype == sample.next_observations[1].dtype == np.uint8
    # 2 floats and 4 bytes are seen; an action is a float and two branches of five choices in all; and 13.
    per_step, per_segment = 8 + 4 + 4 + 8 + 5 + 13, 8 + 4 + 5 + 1
    assert replay.bytes == 4096 * per_step + len(replay._finals["terminated"]) * per_segment
    assert len(replay._finals["terminated"]) <= 2 * 64


def test_bytes_and_floats_of_one_sensor_mean_equal_pictures() -> None:
    replay = TransitionReplay(SPEC, 100)
    replay.add(trajectories([3], pictures=np.uint8))
    replay.add(trajectories([2], 3, pictures=np.float32))
    replay.add(trajectories([2], 5, pictures=np.uint8))
    sample = everything(replay)
    bytes_of = np.array([0, 2, 4, 3 * 255, 4 * 255, 10, 12]) / 255
    np.testing.assert_allclose(sample.observations[1][:, 0, 0, 0], bytes_of, rtol=1e-6)
    following = np.array([2, 4, 5, 4 * 255, 4 * 255, 12, 13]) / 255
    following[4] = np.float32(4.5)
    np.testing.assert_allclose(sample.next_observations[1][:, 0, 1, 1], following, rtol=1e-6)
