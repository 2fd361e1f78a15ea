"""The buffer of sequences against a plain list of trajectories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    return Trajectories(
        observations=(numbers[:, None],),
        continuous_actions=numbers[:, None] / 10,
        discrete_actions=np.zeros((len(numbers), 1), np.int64),
        allowed_actions=np.ones((len(numbers), 2), np.bool_),
        log_probs=np.zeros_like(numbers),
        memories=np.repeat(numbers[:, None], MEMORY, axis=1),
        rewards=numbers,
        group_rewards=np.zeros_like(numbers),
        lengths=lengths,
        final_observations=(finals[:, None],),
        final_allowed_actions=np.ones((len(lengths), 2), np.bool_),
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
@settings(max_examples=150, deadline=None)
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
@settings(max_examples=80, deadline=None)
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


def test_all_whole_sequences_are_drawn_alike_however_long() -> None:
    replay = SequenceReplay(SPEC, 40, memory_size=MEMORY)
    replay.add(trajectories([(10, True), (1, True), (5, False), (20, True), (8, False)]))
    rng = np.random.default_rng(5)
    drawn = [first for first, _, _ in sequences_of(replay.sample(20_000, rng))]
    # The first four steps are overwritten; of the others 5000 each are expected, with a deviation of 61.
    firsts, counts = np.unique(drawn, return_counts=True)
    assert firsts.tolist() == [10.0, 11.0, 16.0, 36.0]
    assert np.abs(counts - 5000).max() < 300


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


def test_every_step_of_a_sequence_weighs_what_its_sequence_does() -> None:
    replay = SequenceReplay(SPEC, 100, memory_size=MEMORY, alpha=1.0)
    replay.add(trajectories([(4, True), (2, True), (1, False)]))
    replay.reprioritize(np.arange(7), np.repeat([1.0, 2.0, 4.0], [4, 2, 1]))
    sample = replay.sample(64, np.random.default_rng(2), beta=1.0)
    assert sample.weights is not None
    # P ∝ p, so w ∝ 1/p: 1, ½ and ¼ of the largest.
    expected = {0.0: 1.0, 4.0: 0.5, 6.0: 0.25}
    assert {first for first, _, _ in sequences_of(sample)} == set(expected)
    first_of_step = np.array([0, 0, 0, 0, 4, 4, 6])[sample.observations[0][:, 0].astype(int)]
    np.testing.assert_allclose(sample.weights, [expected[first] for first in first_of_step], rtol=1e-5)


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


def test_priorities_survive_a_round_trip() -> None:
    replay, other = (SequenceReplay(SPEC, 20, memory_size=MEMORY, alpha=0.6) for _ in range(2))
    for start in (0, 11, 22):
        replay.add(trajectories([(4, True), (5, False), (2, True)], start))
    sample = replay.sample(8, np.random.default_rng(4))
    replay.reprioritize(sample.rows, sample.task_rewards.astype(np.float64))
    other.load_state(replay.state())
    one, same = (each.sample(32, np.random.default_rng(1), beta=0.4) for each in (replay, other))
    np.testing.assert_array_equal(one.rows, same.rows)
    np.testing.assert_array_equal(one.weights, same.weights)
    uniform = SequenceReplay(SPEC, 20, memory_size=MEMORY)
    uniform.load_state(replay.state())
    assert everything(uniform) == everything(replay)
    other.load_state(uniform.state())
    assert np.unique(other.state()["priorities"]).tolist() == [1.0]


def test_memory_is_kept_once_for_a_sequence() -> None:
    plain, replay = TransitionReplay(SPEC, 4096), SequenceReplay(SPEC, 4096, memory_size=MEMORY)
    for start in range(0, 4096, 512):
        for each in (plain, replay):
            each.add(trajectories([(64, True)] * 8, start))
    segments = len(replay._finals["terminated"])
    assert segments <= 2 * 64
    assert replay.bytes == plain.bytes + segments * 4 * MEMORY


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
