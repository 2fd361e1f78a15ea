import json
import math
from typing import Any

import pytest
from clocks import Clock

from trainer_service.running.metrics.timers import Timers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    nanoseconds = "trainer_service.running.metrics.timers.time.perf_counter_ns"
    monkeypatch.setattr(nanoseconds, lambda: int(clock() * 1e9))
    return clock


def document(timers: Timers) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(timers.to_json())
    return parsed


def test_the_time_of_an_inner_block_is_not_its_parents(clock: Clock) -> None:
    timers = Timers()
    with timers("update"):
        clock.now_s += 1.0
        with timers("minibatch"):
            clock.now_s += 4.0
    update = document(timers)["children"]["update"]
    assert (update["total"], update["self"]) == (5.0, 1.0)
    assert update["children"] == {"minibatch": {"total": 4.0, "count": 1, "self": 4.0}}


def test_blocks_add_up_by_name_within_the_life_of_the_timers(clock: Clock) -> None:
    timers = Timers()
    clock.now_s += 1.0
    for seconds in (1.0, 2.0):
        with timers("act"):
            clock.now_s += seconds
    root = document(timers)
    assert root["children"] == {"act": {"total": 3.0, "count": 2, "self": 3.0}}
    assert (root["name"], root["total"], root["count"], root["self"]) == ("root", 4.0, 1, 1.0)


def test_gauges_keep_value_range_and_count() -> None:
    timers = Timers()
    for value in (2.0, -1.0, math.nan, math.inf, 5.0, 3.0):
        timers.gauge("Ball.Policy.Entropy.mean", value)
    expected = {"value": 3.0, "min": -1.0, "max": 5.0, "count": 4}
    assert document(timers)["gauges"] == {"Ball.Policy.Entropy.mean": expected}
