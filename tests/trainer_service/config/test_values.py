from __future__ import annotations

import math

import pytest
from pydantic_core import PydanticCustomError

from trainer_service.config.values import flag, number, shown, text, whole_number


@pytest.mark.parametrize("value", [10000, 1e4, "1e4", "1.0e4", "10000", "10_000"])
def test_a_whole_number_may_be_written_in_any_notation(value: object) -> None:
    result = whole_number(value)
    assert result == 10000
    assert type(result) is int


NO_WHOLE_NUMBERS = [1.5, "1.5", "lots", "", True, None, [1], {}, math.inf, math.nan, "nan", 10**30]


@pytest.mark.parametrize("value", [*NO_WHOLE_NUMBERS, pytest.param(10**5000, id="5000 digits")])
def test_values_that_are_no_whole_numbers_are_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError, match="expected a whole number"):
        whole_number(value)


@pytest.mark.parametrize("value", [3e-4, "3e-4", "0.0003", ".3e-3"])
def test_a_number_may_be_written_in_any_notation(value: object) -> None:
    assert number(value) == 3e-4


@pytest.mark.parametrize("value", [math.inf, math.nan, "inf", "-Infinity", "NaN", "1e999", 10**400])
def test_a_number_is_finite(value: object) -> None:
    with pytest.raises(PydanticCustomError, match=r"expected a (finite )?number"):
        number(value)


@pytest.mark.parametrize("value", [True, "true", "YES", "on", 1])
def test_a_flag_may_be_written_in_any_notation(value: object) -> None:
    assert flag(value) is True


@pytest.mark.parametrize("value", ["", "maybe", 2, 0.5, [], {}])
def test_values_that_are_no_flags_are_refused(value: object) -> None:
    with pytest.raises(PydanticCustomError, match="expected true or false"):
        flag(value)


def test_values_are_shown_in_the_words_of_yaml() -> None:
    values = (None, True, "x", 5, 5.0, 0.5, [1], {})
    assert [*map(shown, values)] == ["nothing", "true", "'x'", "5", "5", "0.5", "a list", "a mapping"]
    assert len(shown("x" * 1000)) < 100


def test_bytes_that_are_no_characters_are_refused_in_words() -> None:
    with pytest.raises(PydanticCustomError, match=r"expected a text in UTF-8 .*, got 'r\\udcff'$"):
        text("r\udcff")
    assert text("走る") == "走る"
