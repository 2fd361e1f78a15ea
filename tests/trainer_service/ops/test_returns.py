import numpy as np
import pytest

from trainer_service.ops.returns import discounted_sums_so_far, ragged_generalized_advantage, standardize


def columns_advantage(
    rewards: np.ndarray, values: np.ndarray, bootstrap: np.ndarray, *, discount: float, gae_lambda: float
) -> np.ndarray:
    """Advantages of trajectories of equal length, one in each column: [T, B]."""
    steps, trajectories = rewards.shape
    flat = ragged_generalized_advantage(
        rewards.T.ravel(),
        values.T.ravel(),
        bootstrap,
        np.full(trajectories, steps),
        discount=discount,
        gae_lambda=gae_lambda,
    )
    return flat.reshape(trajectories, steps).T


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)[:, None]


def test_advantages_by_hand() -> None:
    # γ = λ = ½, so γλ = ¼ and every number can be checked on paper.
    rewards, values = column(1, 0, 2), column(1, 2, 0)
    advantages = columns_advantage(rewards, values, np.array([4.0]), discount=0.5, gae_lambda=0.5)
    #   δ = [1+1−1, 0+0−2, 2+2−0] = [1, −2, 4]      Â = [1 − 1/4, −2 + 1, 4]
    np.testing.assert_allclose(advantages[:, 0], [0.75, -1.0, 4.0])


def test_the_published_three_step_example() -> None:
    advantages = columns_advantage(
        column(1, 1, 1), column(0.5, 0.5, 0.5), np.array([0.7]), discount=0.9, gae_lambda=0.8
    )
    np.testing.assert_allclose(advantages[:, 0], [2.219792, 1.7636, 1.13], atol=1e-9)


def test_a_step_of_several_ticks_is_discounted_by_each() -> None:
    # γ = ½, λ = 1: δ = [1 + ¼·2 − 4, 1 + ⅛·8 − 2] = [−2.5, 0], and the later one counts a quarter.
    advantages = ragged_generalized_advantage(
        np.array([1.0, 1.0]),
        np.array([4.0, 2.0]),
        np.array([8.0]),
        np.array([2]),
        discount=0.5,
        gae_lambda=1.0,
        durations=np.array([2.0, 3.0]),
    )
    np.testing.assert_allclose(advantages, [-2.5, 0.0])


REWARDS, VALUES = [1.0, 0.0, 2.0, 1.0], [0.5, 0.4, 0.3, 0.2]


@pytest.mark.parametrize(
    ("bootstraps", "lengths", "expected"),
    [
        ([0.1], [4], [3.225873, 2.477271, 2.743510, 0.899]),
        ([0.0, 0.1], [2, 2], [0.5198, -0.4, 2.743510, 0.899]),  # the task ended after the second step
        ([0.7, 0.1], [2, 2], [1.171566, 0.293, 2.743510, 0.899]),  # only the clock did
    ],
)
def test_an_end_cuts_the_recursion_and_truncation_bootstraps(
    bootstraps: list[float], lengths: list[int], expected: list[float]
) -> None:
    advantages = ragged_generalized_advantage(
        np.array(REWARDS),
        np.array(VALUES),
        np.array(bootstraps),
        np.array(lengths),
        discount=0.99,
        gae_lambda=0.95,
    )
    np.testing.assert_allclose(advantages, expected, atol=1e-6)


def test_lambda_one_is_monte_carlo() -> None:
    rng = np.random.default_rng(1)
    rewards, values, bootstrap = rng.normal(size=(7, 3)), rng.normal(size=(7, 3)), rng.normal(size=3)
    advantages = columns_advantage(rewards, values, bootstrap, discount=0.9, gae_lambda=1.0)
    return_ = bootstrap
    for t in reversed(range(7)):
        return_ = rewards[t] + 0.9 * return_
        np.testing.assert_allclose(advantages[t], return_ - values[t])


def test_lambda_zero_is_the_one_step_error() -> None:
    rng = np.random.default_rng(2)
    rewards, values, bootstrap = rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), rng.normal(size=2)
    advantages = columns_advantage(rewards, values, bootstrap, discount=0.9, gae_lambda=0.0)
    np.testing.assert_allclose(advantages[:-1], rewards[:-1] + 0.9 * values[1:] - values[:-1])
    np.testing.assert_allclose(advantages[-1], rewards[-1] + 0.9 * bootstrap - values[-1])


def test_trajectories_end_to_end_equal_each_on_its_own() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 20, size=30)
    rewards, values = rng.normal(size=lengths.sum()), rng.normal(size=lengths.sum())
    bootstrap = rng.normal(size=len(lengths))
    together = ragged_generalized_advantage(
        rewards, values, bootstrap, lengths, discount=0.97, gae_lambda=0.9
    )
    starts = np.cumsum(lengths) - lengths
    for segment, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        alone = columns_advantage(
            rewards[start : start + length, None],
            values[start : start + length, None],
            bootstrap[segment : segment + 1],
            discount=0.97,
            gae_lambda=0.9,
        )
        np.testing.assert_allclose(together[start : start + length], alone[:, 0])


def test_standardized_values_have_mean_zero_and_deviation_one() -> None:
    standardized = standardize(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(standardized, [-1.224745, 0, 1.224745], atol=1e-6)


def test_a_constant_standardizes_to_zeros_not_to_nan() -> None:
    np.testing.assert_array_equal(standardize(np.full(4, 7.0)), np.zeros(4))


def test_discounted_sums_go_on_from_those_before() -> None:
    # γ = ½. The first run: ½·8 + 1 = 5, ½·5 + 2 = 4.5; the second one begins at 0.
    sums = discounted_sums_so_far(
        np.array([1.0, 2.0, 3.0]), np.array([8.0, 0.0]), np.array([2, 1]), discount=0.5
    )
    assert sums.tolist() == [5.0, 4.5, 3.0]
    nothing = discounted_sums_so_far(np.empty(0), np.empty(0), np.empty(0, np.int64), discount=0.5)
    assert len(nothing) == 0
