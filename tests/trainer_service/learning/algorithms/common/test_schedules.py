import pytest

from trainer_service.learning.algorithms.common.schedules import scheduled


@pytest.mark.parametrize(("step", "expected"), [(0, 0.3), (250, 0.25), (500, 0.2), (1000, 0.1), (1500, 0.1)])
def test_linear_falls_to_its_floor_at_max_steps_and_stays(step: int, expected: float) -> None:
    assert scheduled("linear", 0.3, 0.1, step, 1000) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (250, 0.1 / 10**0.5), (500, 0.01), (1000, 0.001), (1500, 0.001)]
)
def test_exponential_falls_to_a_hundredth_by_equal_factors(step: int, expected: float) -> None:
    assert scheduled("exponential", 0.1, 1e-5, step, 1000) == pytest.approx(expected)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.4), (500, 0.2), (1000, 0.1)])
def test_exponential_ends_at_a_floor_above_a_hundredth(step: int, expected: float) -> None:
    assert scheduled("exponential", 0.4, 0.1, step, 1000) == pytest.approx(expected)


def test_nothing_decays_from_zero() -> None:
    assert scheduled("exponential", 0.0, 1e-5, 500, 1000) == 0.0


def test_constant_stays() -> None:
    assert scheduled("constant", 0.3, 0.1, 999, 1000) == 0.3


def test_no_steps_at_all_means_the_floor() -> None:
    assert scheduled("linear", 1.0, 0.5, 0, 0) == 0.5


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown schedule 'cosine'"):
        scheduled("cosine", 1.0, 0.0, 0, 1)
