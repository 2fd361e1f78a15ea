import json
import math
from typing import Any

import pytest

from trainer_service.running.metrics.timers import Timers


class Clock:
    """A clock that stands still between steps of a test."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("trainer_service.running.metrics.timers.time.perf_counter_ns", clock)
    return clock


def document(timers: Timers) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(timers.to_json())
    return parsed


def test_blocks_add_up_by_name(clock: Clock) -> None:
    timers = Timers()
    for seconds in (1.0, 2.0):
        with timers("act"):
            clock.advance(seconds)
    assert document(timers)["children"] == {"act": {"total": 3.0, "count": 2, "self": 3.0}}


def test_the_time_of_an_inner_block_is_not_its_parents(clock: Clock) -> None:
    timers = Timers()
    with timers("update"):
        clock.advance(1.0)
        with timers("minibatch"):
            clock.advance(4.0)
    update = document(timers)["children"]["update"]
    assert (update["total"], update["self"]) == (5.0, 1.0)
    assert update["children"] == {"minibatch": {"total": 4.0, "count": 1, "self": 4.0}}


def test_the_root_covers_the_life_of_the_timers(clock: Clock) -> None:
    timers = Timers()
    clock.advance(1.0)
    with timers("act"):
        clock.advance(2.0)
    root = document(timers)
    assert root["name"] == "root"
    assert (root["total"], root["count"], root["self"]) == (3.0, 1, 1.0)


def test_gauges_keep_value_range_and_count() -> None:
    timers = Timers()
    for value in (2.0, -1.0, math.nan, math.inf, 5.0, 3.0):
        timers.gauge("Ball.Policy.Entropy.mean", value)
    expected = {"value": 3.0, "min": -1.0, "max": 5.0, "count": 4}
    assert document(timers)["gauges"] == {"Ball.Policy.Entropy.mean": expected}
