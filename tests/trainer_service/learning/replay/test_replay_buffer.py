from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trajectories import trajectories_of

from trainer_service.learning.replay.sum_tree import SumTree
from trainer_service.learning.replay.transitions import TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("a", (1,)),), ActionSpec(1, ()))


def steps(count: int) -> Trajectories:
    column = np.arange(count, dtype=np.float32)
    return trajectories_of([column[:, None]], [count], continuous_actions=column[:, None], rewards=column)


changes = st.lists(st.tuples(st.integers(0, 99), st.floats(0, 1e3)), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 100), st.lists(changes, min_size=1, max_size=6), st.floats(0, 1, exclude_max=True))
def test_the_tree_finds_what_running_sums_find(
    capacity: int, rounds: list[list[tuple[int, float]]], share: float
) -> None:
    tree, plain = SumTree(capacity), np.zeros(capacity)
    for each in rounds:
        rows = np.array([row % capacity for row, _ in each])
        values = np.array([value for _, value in each])
        tree.set(rows, values)
        for row, value in zip(rows, values, strict=True):
            plain[row] = value
        np.testing.assert_array_equal(tree[np.arange(capacity)], plain)
        np.testing.assert_allclose(tree.total, plain.sum())
        assert tree.largest == plain.max()
    if plain.sum() > 0:
        mass = share * tree.total
        (found,) = tree.find(np.array([mass])).tolist()
        assert plain[found] > 0
        before = plain[:found].sum()
        assert before - 1e-9 * plain.sum() <= mass <= before + plain[found] + 1e-9 * plain.sum()


def test_no_rounding_finds_a_row_without_a_priority() -> None:
    tree = SumTree(4)
    tree.set(np.arange(4), np.array([0.2, 0.001, 0.7, 0.0]))
    mass = np.nextafter(tree.total, 0.0)
    assert mass - (0.2 + 0.001) >= 0.7, "what is left beyond the first two rows is all of the third"
    assert tree.find(np.array([mass])).tolist() == [2]


def test_rows_are_drawn_in_proportion_to_their_errors() -> None:
    replay = TransitionReplay(SPEC, 8, alpha=0.5)
    replay.add(steps(8))
    errors = np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0])
    replay.reprioritize(np.arange(8), errors)
    rng = np.random.default_rng(1)
    drawn = np.concatenate([replay.sample(64, rng).rows for _ in range(400)])
    # √|δ|: 0 to 7, of 28 in all; ε leaves the first a thousandth of a share.
    np.testing.assert_allclose(np.bincount(drawn, minlength=8) / len(drawn), np.arange(8) / 28, atol=0.01)


def test_weights_undo_what_likelier_rows_would_do_to_a_mean() -> None:
    replay = TransitionReplay(SPEC, 8, alpha=1.0)
    replay.add(steps(8))
    replay.reprioritize(np.arange(8), np.arange(1.0, 9.0))
    rng = np.random.default_rng(2)
    sample = replay.sample(50_000, rng, beta=1.0)
    assert sample.weights is not None
    assert sample.weights.max() == 1.0
    # All rows weigh the same in the end: the weighted mean of row numbers is the plain one.
    assert abs(np.average(sample.rows, weights=sample.weights) - 3.5) < 0.05
    # By hand: P = p/36, so w ∝ 1/p, and the smallest p has weight 1.
    np.testing.assert_allclose(sample.weights, 1.0 / (sample.rows + 1), rtol=1e-5)
    half = replay.sample(64, rng, beta=0.5)
    assert half.weights is not None
    np.testing.assert_allclose(
        half.weights, (half.rows.min() + 1.0) ** 0.5 / (half.rows + 1.0) ** 0.5, rtol=1e-5
    )


def test_what_is_new_is_as_urgent_as_the_most_urgent() -> None:
    replay = TransitionReplay(SPEC, 8, alpha=1.0)
    replay.add(steps(2))
    assert replay.state()["priorities"].tolist() == [1.0, 1.0]
    replay.reprioritize(np.array([0, 1]), np.array([-5.0, 2.0]))
    replay.add(steps(1))
    np.testing.assert_allclose(replay.state()["priorities"], [5.0, 2.0, 5.0], rtol=1e-5)
    # Once the most urgent one is overwritten or learned, it no longer counts.
    replay.reprioritize(np.array([0, 2]), np.array([1.0, 1.0]))
    replay.add(steps(1))
    np.testing.assert_allclose(replay.state()["priorities"], [1.0, 2.0, 1.0, 2.0], rtol=1e-5)
