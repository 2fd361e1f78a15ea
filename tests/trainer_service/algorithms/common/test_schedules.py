import pytest

from trainer_service.algorithms.common.schedules import linear_decay, scheduled


@pytest.mark.parametrize(("step", "expected"), [(0, 0.3), (250, 0.25), (500, 0.2), (1000, 0.1), (1500, 0.1)])
def test_linear_falls_to_its_floor_at_max_steps_and_stays(step: int, expected: float) -> None:
    assert scheduled("linear", 0.3, 0.1, step, 1000) == pytest.approx(expected)


def test_constant_stays() -> None:
    assert scheduled("constant", 0.3, 0.1, 999, 1000) == 0.3


def test_no_steps_at_all_means_the_floor() -> None:
    assert linear_decay(1.0, 0.5, 0, 0) == 0.5


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown schedule 'cosine'"):
        scheduled("cosine", 1.0, 0.0, 0, 1)
