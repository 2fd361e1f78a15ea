import pytest

from trainer_service.running.metrics import short_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.25, "0.25"),
        (-3.0, "-3"),
        (150_000.0, "150k"),
        (2.5e6, "2.5M"),
        (3e-5, "3e-05"),
        (1e40, "1e+40"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (78_768, "78.8k"),
        (3_000_000, "3M"),
        (6.575, "6.58"),
        (13.694, "13.7"),
        (999_999, "1M"),
        (-999.9, "-1k"),
        (0, "0"),
    ],
)
def test_numbers_are_shorter_in_three_digits(value: float, text: str) -> None:
    assert short_number(value, 3) == text
