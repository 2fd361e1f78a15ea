"""Two tiers of the same fault: a few times in CI, often enough for a figure with ``make chaos``."""

from __future__ import annotations

import os
from typing import Any

import pytest

COUNT = os.environ.get("CHAOS_COUNT")
"""Replaces the count of every long test, to try a few or many more."""


def fault_counts(short: int | None, long: int, *, minutes: int = 30) -> pytest.MarkDecorator:
    """Parametrizes ``count``: how often a fault happens. ``short`` None keeps a test out of CI."""
    marks = (pytest.mark.chaos, pytest.mark.timeout(60 * minutes))
    params: list[Any] = [pytest.param(int(COUNT or long), id="long", marks=marks)]
    if short is not None:
        params.insert(0, pytest.param(short, id="short"))
    return pytest.mark.parametrize("count", params)
