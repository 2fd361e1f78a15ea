"""Chance, tried more than once: CI takes the first seed, ``make test-all`` takes them all."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(first: int, *others: int) -> pytest.MarkDecorator:
    """Parametrizes ``seed`` of a test that learns."""
    thorough = [pytest.param(seed, marks=pytest.mark.thorough) for seed in others]
    return pytest.mark.parametrize("seed", [first, *thorough])


def quick_where(is_quick: bool, *values: Any) -> Any:
    """Parameters of a test that ``make test`` takes too, or ``make test-all`` alone."""
    return pytest.param(*values, marks=() if is_quick else pytest.mark.thorough)
