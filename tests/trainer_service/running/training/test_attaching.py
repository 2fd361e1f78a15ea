"""Simulators that come by themselves, and go."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import trainer_service
from trainer_service.errors import ConfigError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, and simulators that are scripts")

FOR_EVER = 10**9


def test_simulators_come_and_go_while_the_run_goes_on(
    start, configure, program, actor, free_port: int
) -> None:
    configure("Treadmill", "Walker", max_steps=FOR_EVER, summary_freq=180)
    treadmill = program("treadmill")
    run = start("learn", "config.yaml", f"--port={free_port}", "--seed=1")
    run.until(f"Listening on port {free_port}.")

    def come(path):
        return start("--mlagents-port", free_port, program=path)

    first = come(treadmill)
    run.until("Connected new brain: Treadmill?team=0")
    run.until("Treadmill. Step: ")
    second = come(treadmill)
    run.until("Connected to ")
    run.until("Treadmill. Step: ")

    first.signal(signal.SIGTERM)
    assert "simulator 0 (" in run.until("stopped by itself (status 400)")
    assert first.end() == 0, first.output
    run.until("Treadmill. Step: ")

    come(actor("introduce", "confirm", "step", "garbage"))
    run.until("Connected new brain: Walker?team=0")
    run.until("expected a UnityMessageProto, got 15 bytes that are none")
    run.until("Treadmill. Step: ")

    run.signal(signal.SIGINT)
    assert run.end() == 0, run.output
    assert second.end() == 0, second.output


def test_several_simulators_need_something_to_start(workplace: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"env_settings\.num_envs: expected 1 while env_path \(env=\) is not"
    ):
        trainer_service.train({"env_settings": {"num_envs": 3}}, run_id="many")
    assert not Path("results").exists()
