"""Chance, tried more than once: CI takes the first seed, ``make test-all`` takes them all."""

from __future__ import annotations

import pytest


def seeds(first: int, *others: int) -> pytest.MarkDecorator:
    """Parametrizes ``seed`` of a test that learns."""
    thorough = [pytest.param(seed, marks=pytest.mark.thorough) for seed in others]
    return pytest.mark.parametrize("seed", [first, *thorough])
