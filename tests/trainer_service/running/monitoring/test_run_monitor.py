"""What a monitor keeps of a run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clocks import Clock

from trainer_service.running.monitoring.run_monitor import RunMonitor, SavedState
from trainer_service.running.runs.layout import RunLayout


class Source:
    """A source of experience that notes its calls."""

    def __init__(self, simulators: int = 2) -> None:
        self.num_simulators = simulators
        self.num_restarts = 0
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.calls.append(name)


def behaviors(step: int = 500) -> dict[str, Any]:
    settings = SimpleNamespace(max_steps=1000)
    return {"Ball": SimpleNamespace(name="Ball", step=step, settings=settings, steps_per_s=40.0, episodes=7)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(tmp_path: Path, clock: Clock) -> RunMonitor:
    return RunMonitor(RunLayout(tmp_path), clock=clock, now=lambda: 1_700_000_000.0)


def test_a_watched_source_ticks_and_does_what_it_did(monitor: RunMonitor, clock: Clock) -> None:
    source = Source()
    watched = monitor.watching(lambda *parts: source)(behaviors(), None, None, "cpu")  # type: ignore[arg-type]
    assert monitor.tick_age_s is None
    watched.collect()
    watched.act()
    watched.send_parameters()
    watched.restart()
    assert source.calls == ["collect", "act", "send_parameters", "restart"]
    assert (watched.num_simulators, watched.num_restarts) == (2, 0)
    clock.now_s += 3.0
    assert monitor.tick_age_s == 3.0
    assert monitor.state.simulators == 2
    assert monitor.state.behaviors["Ball"].step == 500


@pytest.mark.parametrize(
    ("simulators", "age_s", "stuck"), [(1, 61.0, True), (1, 59.0, False), (0, 61.0, False)]
)
def test_only_a_loop_with_simulators_can_be_stuck(
    monitor: RunMonitor, clock: Clock, simulators: int, age_s: float, stuck: bool
) -> None:
    assert not monitor.is_stuck(60.0)
    monitor.tick(Source(simulators), behaviors())  # type: ignore[arg-type]
    clock.now_s += age_s
    assert monitor.is_stuck(60.0) is stuck


def test_checkpoints_are_those_on_the_disk(monitor: RunMonitor, tmp_path: Path) -> None:
    assert monitor.saved("Ball") == SavedState(None, None)
    (tmp_path / "Ball").mkdir()
    for name in ("checkpoint.safetensors", "Ball-500.safetensors", "Ball-1500.safetensors", "Ball-2000.onnx"):
        (tmp_path / "Ball" / name).touch()
    os.utime(tmp_path / "Ball" / "checkpoint.safetensors", (1_600_000_000, 1_600_000_000))
    assert monitor.saved("Ball") == SavedState(1500, 1_600_000_000.0)
