"""Rules that end a run before its budget of steps is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from trainer_service.config.section import Section, build_each
from trainer_service.config.values import PositiveCount, expected, number

_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(d|h|min|m|s)\s*")
_DURATION = r"^\s*(\d+(\.\d+)?\s*(d|h|min|m|s)\s*)+$"


def _as_targets(value: Any) -> float | dict[str, float] | None:
    """Reads one number for all behaviors, or a mapping of behavior names to numbers."""
    if value is None or not isinstance(value, Mapping):
        return None if value is None else number(value)
    if not value:
        raise expected("a number, or a number for each of some behaviors", value)
    return build_each(value, lambda name, target: number(target))


def _as_seconds(value: Any) -> float | None:
    """Reads seconds, or a text such as ``2h``, ``90min`` or ``1h 30min``."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(_DURATION, value):
        return sum(float(amount) * _UNITS_S[unit] for amount, unit in _PART.findall(value))
    try:
        seconds = number(value)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise expected("a duration such as 2h, 90min or 1h 30min, or seconds", value)
    return seconds


Targets = Annotated[
    float | dict[str, float] | None,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1},
                {"type": "null"},
            ]
        }
    ),
    BeforeValidator(_as_targets),
]
Duration = Annotated[
    float | None,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": _DURATION},
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "null"},
            ]
        }
    ),
    BeforeValidator(_as_seconds),
]
"""Seconds."""


class StopSettings(Section):
    """Rules that end the run before ``max_steps``, with everything saved. The first that holds ends it.

    An addition to ML-Agents.
    """

    target_return: Targets = None
    """The score that every behavior must reach, or a mapping with that of each one that must, if it comes. A score is
    the mean return of an evaluation, or without evaluations that of the last 100 episodes or more of training."""

    no_progress: PositiveCount | None = None
    """Agent steps of a behavior without a better score after which it makes no progress; the run ends when none makes
    any."""

    steps: PositiveCount | None = None
    """Agent steps of the behavior that has most at which the run stops, to be resumed later. Unlike ``max_steps`` it
    changes no schedule."""

    wall_clock: Duration = None
    """Time after which the run ends: ``2h``, ``90min``, ``1h 30min``, or seconds. It starts from 0 with every start."""
