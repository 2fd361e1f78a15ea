"""Policies before their first update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy


@pytest.fixture
def policy(make_behavior) -> Callable[..., Policy]:
    """Makes the policy of a small behavior; see ``make_behavior``."""

    def make(**behavior: Any) -> Policy:
        return Policy(checkpoint_of(make_behavior(**behavior)))

    return make
