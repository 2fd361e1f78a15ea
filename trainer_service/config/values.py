"""Types of values, and the conversion of YAML scalars to numbers, flags and texts.

YAML 1.1 reads ``3e-4`` and ``1.0e4`` as texts and ``yes`` as true, so numbers are accepted as texts too; and
a text such as "false" must never become true.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from unity_bridge.untrusted_text import printable

_Number = TypeVar("_Number", int, float)

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LONGEST_SHOWN = 60
_LARGEST_WHOLE_NUMBER = 2**63 - 1


def problem(text: str) -> PydanticCustomError:
    """Returns a validation error with this text."""
    return PydanticCustomError("problem", "{text}", {"text": printable(text)})  # pydantic takes UTF-8 only


def expected(what: str, value: object) -> PydanticCustomError:
    """Returns a validation error with the expected and the given value."""
    return problem(f"expected {what}, got {shown(value)}")


def shown(value: object) -> str:
    """Formats a value for a message, in the words of YAML rather than of Python."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)  # it was probably written so
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_SHOWN:
        return f"a number of more than {_LONGEST_SHOWN} digits"  # Python prints no longer one than of 4300
    text = repr(value) if isinstance(value, str | int | float) else f"'{value}'"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _converted(what: str, value: Any, convert: Callable[[int | float | str], _Number]) -> _Number:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise expected(what, value)
    try:
        return convert(value)
    except (ValueError, OverflowError):
        raise expected(what, value) from None


def whole_number(value: Any) -> int:
    """Converts an int, an integral float or the text of either to an int."""
    number = _converted("a whole number", value, _integral)
    if abs(number) > _LARGEST_WHOLE_NUMBER:
        raise expected("a whole number of at most 64 bits", value)
    return number


def _integral(value: int | float | str) -> int:
    """Converts a whole number. Raises ValueError or OverflowError for any other value."""
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = float(value)
    if int(value) != value:
        raise ValueError
    return int(value)


def number(value: Any) -> float:
    """Converts a number or the text of one to a finite float."""
    result = _converted("a number", value, float)
    if not math.isfinite(result):
        raise expected("a finite number", value)
    return result


def flag(value: Any) -> bool:
    """Converts true or false, their texts, 0 or 1 to a bool; an empty value is false, as in ML-Agents."""
    if value is None:
        return False
    if isinstance(value, str):
        value = _FLAGS.get(value.lower(), value)
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    raise expected("true or false", value)


def text(value: Any) -> str:
    """Converts texts, numbers and dates to the text that was written, so that ``run_id: 7`` works."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | datetime.date):
        raise expected("a text", value)
    written = str(value)
    if _has_surrogates(written):
        raise expected("a text in UTF-8 (on a command line the locale counts, such as LC_ALL=C.UTF-8)", value)
    return written


def _has_surrogates(written: str) -> bool:
    """Whether a text holds bytes that are no characters, as Python takes over from the command line."""
    try:
        written.encode()
    except UnicodeEncodeError:
        return True
    return False


def _not_empty(value: str) -> str:
    if not value.strip():
        raise expected("a text that is not empty", value)
    return value


# A bound stands before the function that reads the text: only then does it reach the JSON Schema.
WholeNumber = Annotated[int, BeforeValidator(whole_number)]
Count = Annotated[int, Field(ge=0), BeforeValidator(whole_number)]
PositiveCount = Annotated[int, Field(ge=1), BeforeValidator(whole_number)]
CountOrUnlimited = Annotated[int, Field(ge=-1), BeforeValidator(whole_number)]
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(whole_number)]

Number = Annotated[float, BeforeValidator(number)]
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(number)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(number)]
UnitInterval = Annotated[float, Field(ge=0, le=1), BeforeValidator(number)]
Share = Annotated[float, Field(gt=0, lt=1), BeforeValidator(number)]
"""A part of a whole: neither nothing nor all of it."""
LogStd = Annotated[float, Field(ge=-20, le=2), BeforeValidator(number)]
"""The natural logarithm of a standard deviation, from 2e-9 to 7.4."""

Seed = Annotated[int, Field(ge=-1, le=2**31 - 1), BeforeValidator(whole_number)]
"""A seed of 31 bits, as the wire carries 32; −1 asks for one chosen at random."""

Flag = Annotated[bool, BeforeValidator(flag)]
Text = Annotated[
    str,
    WithJsonSchema({"type": ["string", "number"], "minLength": 1}),
    BeforeValidator(text),
    AfterValidator(_not_empty),
]

_Value = TypeVar("_Value")
SHAPES_WEIGHTS = "shapes weights"
"""Mark of keys on which the names and shapes of weights depend."""
ShapesWeights = Annotated[_Value, SHAPES_WEIGHTS]
"""The type of a key that shapes networks, so that weights of another value of it do not fit."""
