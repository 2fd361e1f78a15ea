"""How many simulators there are, and how often one was started again."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_service.running.collection.simulators import Simulators
from unity_bridge.server.bridge import Departure


def test_restarts_are_counted_and_departures_are_not(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Any] = [
        Departure(0, "simulator 0: exited", restarted=True),
        Departure(1, "simulator 1: left"),
    ]
    bridge = SimpleNamespace(simulators={2: None, 3: None}, receive=lambda timeout_s: events)

    def forget(simulator: int) -> None:
        """Does nothing."""

    class Router(list[Any]):
        remove = staticmethod(forget)
        declared = 0

    channels = SimpleNamespace(drop=forget, handle=forget)
    learners = SimpleNamespace(remove=forget, add_stat=forget)
    simulators = Simulators(bridge, Router(), channels, learners)  # type: ignore[arg-type]
    with caplog.at_level(logging.CRITICAL):
        simulators.collect()
        simulators.collect()
    assert (simulators.num_simulators, simulators.num_restarts) == (2, 2)
