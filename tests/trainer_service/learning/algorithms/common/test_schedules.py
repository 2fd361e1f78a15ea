import pytest

from trainer_service.learning.algorithms.common.schedules import scheduled

LINEAR = [(0, 0.3), (250, 0.25), (500, 0.2), (1000, 0.1), (1500, 0.1)]
EXPONENTIAL = [(0, 0.1), (250, 0.1 / 10**0.5), (500, 0.01), (1000, 0.001), (1500, 0.001)]


@pytest.mark.parametrize(
    ("schedule", "initial", "floor", "step", "expected"),
    [
        *(("linear", 0.3, 0.1, *point) for point in LINEAR),
        *(("exponential", 0.1, 1e-5, *point) for point in EXPONENTIAL),
        ("exponential", 0.4, 0.1, 500, 0.2),
        ("exponential", 0.4, 0.1, 1000, 0.1),
        ("exponential", 0.0, 1e-5, 500, 0.0),
        ("constant", 0.3, 0.1, 999, 0.3),
    ],
)
def test_a_schedule_falls_to_its_floor_and_stays(
    schedule: str, initial: float, floor: float, step: int, expected: float
) -> None:
    assert scheduled(schedule, initial, floor, step, 1000) == pytest.approx(expected)


def test_no_steps_at_all_means_the_floor() -> None:
    assert scheduled("linear", 1.0, 0.5, 0, 0) == 0.5


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown schedule 'cosine'"):
        scheduled("cosine", 1.0, 0.0, 0, 1)
