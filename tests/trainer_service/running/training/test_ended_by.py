"""What ended a run stands in its folder, for who comes back when the terminal is gone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.status.run_status import Ending, run_status
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.runs.files import with_short_paths

RUN = Path("results/ppo")


@pytest.fixture
def learn(mlagents_style, configure, hosted):
    """Trains on the treadmill."""

    def run(*flags: str, stop: str = "", max_steps: int = 300):
        path = configure("Treadmill", max_steps=max_steps, summary_freq=100)
        path.write_text(path.read_text() + stop)
        return mlagents_style("learn", path, "--seed=1", *flags, *hosted("treadmill"))

    return run


def ended_by() -> str:
    told: str = json.loads((RUN / "run_logs" / "timers.json").read_text())["metadata"]["ended_by"]
    assert run_status(read_run(RUN)).ended_by == told
    return told


def test_a_stop_rule_is_kept_with_its_figures(learn) -> None:
    assert learn(stop="stop: {steps: 100}\n", max_steps=10_000_000).code == 0
    assert ended_by().startswith("stop: steps, 100, are reached at step 1")


def test_a_signal_is_kept_by_its_name(learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: Behavior) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return {}

    monkeypatch.setattr(Behavior, "update", update)
    learn()
    assert ended_by() == "SIGTERM"
    assert run_status(read_run(RUN)).ending is Ending.STOPPED


def test_an_error_is_kept_in_its_words(learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: Behavior) -> None:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(Behavior, "update", update)
    with pytest.raises(ZeroDivisionError):
        learn()
    assert ended_by() == "ZeroDivisionError: unexpected"
    assert run_status(read_run(RUN)).ending is Ending.FAILED


def test_a_simulator_that_is_gone_for_good_is_kept(mlagents_style, configure, actor) -> None:
    configure("Walker", max_steps=10_000)
    env = actor("introduce", "confirm", "step", "step", "exit=7")
    said = mlagents_style("learn", "config.yaml", f"--env={env}", "--max-lifetime-restarts=0")
    assert said.code != 0
    assert "exited with code 7" in ended_by()
    assert with_short_paths(ended_by()) in said.err


def test_a_run_that_was_resumed_and_killed_was_not_ended_by_what_ended_it_before(learn) -> None:
    learn()
    timers = RUN / "run_logs" / "timers.json"
    metrics = RUN / "metrics.jsonl"
    later_ns = timers.stat().st_mtime_ns + 10**9
    with metrics.open("a") as file:
        file.write('{"behavior": "Treadmill", "step": 400, "wall_s": 9.0}\n')
    os.utime(metrics, ns=(later_ns, later_ns))
    assert run_status(read_run(RUN)).ended_by == ""
