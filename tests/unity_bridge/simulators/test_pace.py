from __future__ import annotations

import itertools
from typing import Any

import pytest

from unity_bridge.simulators.pace import BOUND, MEASURED, PacedScene


class Still:
    """A scene in which nothing happens."""

    behaviors: Any = None
    frame_s = 0.1
    reset = render = close = None

    def step(self, actions: Any) -> Any:
        return {}


@pytest.mark.parametrize(("message_s", "warnings"), [(BOUND - 0.5, 0), (BOUND + 0.5, 1)])
def test_a_copy_that_waits_for_messages_is_told_of_more_copies_once(
    caplog, message_s: float, warnings: int
) -> None:
    # The clock is read before and after each step of a second.
    times = itertools.accumulate(itertools.cycle([message_s, 1.0]))
    scene = PacedScene(Still(), "gym:X", "--agents", lambda: next(times))
    for _ in range(3 * MEASURED):
        scene.step({})
    assert len(caplog.records) == warnings
    for record in caplog.records:
        assert record.getMessage().startswith(
            f"gym:X: a step takes 1e+03 ms, and its message {'to the'} trainer"
        )
        assert "--agents 8" in record.getMessage()
