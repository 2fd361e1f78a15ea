"""The length of searches in tests/fuzz: ``FUZZ=100 python -m pytest tests/fuzz`` tries a hundred times as many."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = float(os.environ.get("FUZZ", "1"))

MIB = 1 << 20
DICE = st.integers(0, 2**32).map(random.Random)


def examples(count: int) -> Callable[[Any], Any]:
    """Tests with so many inputs: always the same ones, so that CI is not red by chance, others where FUZZ is set."""
    chosen = settings(
        max_examples=max(1, int(count * TIMES)),
        derandomize="FUZZ" not in os.environ,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )

    def apply(test: Any) -> Any:
        return pytest.mark.timeout(180 * max(1, int(TIMES)))(chosen(test))

    return apply


def peak_memory() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
