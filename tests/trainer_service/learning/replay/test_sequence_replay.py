"""The buffer of sequences against a plain list of trajectories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trajectories import trajectories_of

from trainer_service.learning.replay.sequence_replay import SequenceReplay
from trainer_service.learning.replay.transitions import Sample, TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("a", (1,)),), ActionSpec(1, (2,)))
MEMORY = 3

Lived = tuple[float, int, bool]
"""A trajectory: the number of its first step, how many it has, and whether the task ended with it."""


def trajectories(segments: list[tuple[int, bool]], start: float = 0.0) -> Trajectories:
    """Every step has a number; what was seen last has the last step's + 0.5, a memory the step's, three times over."""
    lengths = np.array([length for length, _ in segments], np.int64)
    numbers = (start + np.arange(lengths.sum())).astype(np.float32)
    finals = numbers[np.cumsum(lengths) - 1] + np.float32(0.5) if segments else np.empty(0, np.float32)
    return trajectories_of(
        [numbers[:, None]],
        lengths.tolist(),
        choices=2,
        continuous_actions=numbers[:, None] / 10,
        memories=np.repeat(numbers[:, None], MEMORY, axis=1),
        rewards=numbers,
        final_observations=(finals[:, None],),
        final_memories=np.zeros((len(lengths), MEMORY), np.float32),
        terminated=np.array([end for _, end in segments], np.bool_),
    )


def sequences_of(sample: Sample) -> list[Lived]:
    """The sequences of a sample, checked column by column."""
    assert sample.sequences is not None
    found, end = [], 0
    for length, memory in zip(sample.sequences.lengths, sample.sequences.memories, strict=True):
        start, end = end, end + int(length)
        seen, following = (each[0][start:end, 0] for each in (sample.observations, sample.next_observations))
        first = float(seen[0])
        assert memory.tolist() == [first] * MEMORY
        np.testing.assert_array_equal(seen, first + np.arange(length))
        np.testing.assert_array_equal(following[:-1], seen[1:])
        assert following[-1] == seen[-1] + 0.5
        np.testing.assert_array_equal(sample.task_rewards[start:end], seen)
        assert not sample.terminated[start : end - 1].any()
        found.append((first, int(length), bool(sample.terminated[end - 1])))
    assert end == len(sample.rows)
    return found


def everything(replay: SequenceReplay) -> list[Lived]:
    numbers = np.arange(len(replay._starts) - 1)
    return sequences_of(replay._gather_whole(numbers, None)) if len(numbers) else []


def whole(lived: list[Lived], capacity: int) -> list[Lived]:
    """The trajectories with every step among the last ``capacity`` ones."""
    steps = sum(length for _, length, _ in lived)
    return [each for each in lived if each[0] >= steps - capacity]


def live(replay: SequenceReplay, ticks: list[list[tuple[int, bool]]], lived: list[Lived]) -> None:
    for tick in ticks:
        start = float(sum(length for _, length, _ in lived))
        replay.add(trajectories(tick, start))
        for length, end in tick:
            lived.append((start, length, end))
            start += length


ticks_of_segments = st.lists(st.lists(st.tuples(st.integers(1, 7), st.booleans()), max_size=6), max_size=12)
makers = pytest.mark.parametrize(
    "make",
    [
        lambda capacity: SequenceReplay(SPEC, capacity, memory_size=MEMORY),
        lambda capacity: SequenceReplay(SPEC, capacity, memory_size=MEMORY, alpha=0.6),
    ],
    ids=["uniform", "prioritized"],
)


@makers
@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(7, 30), ticks=ticks_of_segments)
def test_it_holds_the_newest_whole_sequences(make, capacity: int, ticks) -> None:
    replay, lived = make(capacity), []
    for tick in ticks:
        live(replay, [tick], lived)
        assert everything(replay) == whole(lived, capacity)
        if lived:
            drawn = sequences_of(replay.sample(5, np.random.default_rng(1)))
            assert set(drawn) <= set(whole(lived, capacity))


@makers
@settings(max_examples=25, deadline=None)
@given(before=st.integers(7, 30), after=st.integers(7, 40), ticks=ticks_of_segments, later=ticks_of_segments)
def test_a_saved_state_continues_in_a_buffer_of_any_size(make, before: int, after: int, ticks, later) -> None:
    saved, fresh, lived = make(before), make(after), []
    live(saved, ticks, lived)
    fresh.load_state({name: array.copy() for name, array in saved.state().items()})
    steps = sum(length for _, length, _ in lived)
    assert everything(fresh) == whole(lived, min(before, after))
    live(fresh, later, lived)
    gone = steps - min(before, after)
    assert everything(fresh) == [each for each in whole(lived, after) if each[0] >= gone]
    if lived:
        drawn = sequences_of(fresh.sample(5, np.random.default_rng(1)))
        assert set(drawn) <= set(everything(fresh))


def test_sequences_are_sampled_in_proportion_to_their_errors() -> None:
    replay = SequenceReplay(SPEC, 100, memory_size=MEMORY, alpha=0.5)
    replay.add(trajectories([(4, True), (2, True), (1, False), (3, True)]))
    errors = np.array([0.0, 40.0, 0.0, 0.0, 4.0, 0.0, 9.0, 1.0, 1.0, 1.0])
    replay.reprioritize(np.arange(10), errors)
    # 0.9 max + 0.1 mean: 37, 3.8, 9, 1; and √ of that.
    shares = np.sqrt([37.0, 3.8, 9.0, 1.0])
    np.testing.assert_allclose(replay.state()["priorities"], shares, rtol=1e-5)
    rng = np.random.default_rng(1)
    drawn = [first for _ in range(200) for first, _, _ in sequences_of(replay.sample(64, rng))]
    counts = np.unique(drawn, return_counts=True)[1]
    np.testing.assert_allclose(counts / len(drawn), shares / shares.sum(), atol=0.01)


def test_new_sequences_have_the_largest_priority_and_overwritten_ones_none() -> None:
    replay = SequenceReplay(SPEC, 10, memory_size=MEMORY, alpha=1.0)
    replay.add(trajectories([(4, True), (4, True)]))
    replay.reprioritize(np.arange(8), np.repeat([2.0, 5.0], 4))
    replay.add(trajectories([(3, True)], 8))
    np.testing.assert_allclose(replay.state()["priorities"], [5.0, 5.0], rtol=1e-5)
    replay.reprioritize(np.arange(8, 11) % 10, np.full(3, 3.0))
    replay.add(trajectories([(1, True), (1, True), (1, True)], 11))
    np.testing.assert_allclose(replay.state()["priorities"], [5.0, 3.0, 5.0, 5.0, 5.0], rtol=1e-5)
    replay.add(trajectories([(1, True)], 14))
    np.testing.assert_allclose(replay.state()["priorities"], [3.0, 5.0, 5.0, 5.0, 5.0], rtol=1e-5)
    drawn = set(sequences_of(replay.sample(100, np.random.default_rng(1))))
    assert drawn == {(8, 3, True), *((first, 1, True) for first in (11, 12, 13, 14))}


def test_what_does_not_fit_is_refused() -> None:
    replay = SequenceReplay(SPEC, 50, memory_size=MEMORY)
    replay.add(trajectories([(20, True)]))
    state = replay.state()
    with pytest.raises(ValueError, match="none of its sequences fits into a buffer of 10 steps"):
        SequenceReplay(SPEC, 10, memory_size=MEMORY).load_state(state)
    with pytest.raises(ValueError, match="broadcast"):
        SequenceReplay(SPEC, 50, memory_size=MEMORY + 1).load_state(state)
    plain = TransitionReplay(SPEC, 50)
    plain.add(trajectories([(20, True)]))
    with pytest.raises(KeyError, match="taken"):
        SequenceReplay(SPEC, 50, memory_size=MEMORY).load_state(plain.state())
