"""Simulators behind a relay: kills of each of the three processes, cut lines, and runs equal to local ones."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from exchange_ledger import LEDGER, lives
from fault_counts import fault_counts
from network_lines import Proxy
from processes import (
    Process,
    command_line,
    free_port,
    pause,
    small_settings,
    wait_until,
    write_configuration,
    write_program,
)

NO_LIMIT = ("--max-lifetime-restarts=-1", "--restarts-rate-limit-n=-1")
MORE = 600
"""Agent steps of the last part of a run, which nothing disturbs."""


def relay(scene: Any, port: int, *flags: object) -> Process:
    """A relay to a port of this machine."""
    line = [sys.executable, "-m", "trainer_service", "relay", f"--address=127.0.0.1:{port}", *flags]
    return scene.start(*line)


def checkpoint_of(run: str, folder: Path) -> bytes:
    return (folder / "results" / run / "Basic" / "checkpoint.safetensors").read_bytes()


def test_a_relayed_run_equals_a_local_one(scene, note) -> None:
    write_configuration(scene.folder, {"Basic": small_settings(max_steps=600)})
    port = free_port()
    local = scene.learn("--env=sim:basic", "--isolate", "--seed=1", "--run-id=local")
    relayed = scene.learn(f"--port={port}", "--seed=1", "--run-id=relayed")
    carrier = relay(scene, port, "--env=sim:basic")
    codes = [local.end(), relayed.end(), carrier.end()]
    equal = checkpoint_of("local", scene.folder) == checkpoint_of("relayed", scene.folder)
    note("a relayed run beside a local one", "600 steps", f"checkpoints equal to the bit: {equal}")
    assert codes == [0, 0, 0], carrier.output
    assert equal


class RelayedRun:
    """A run with one simulator behind a relay, and the record of what the trainer took in."""

    def __init__(self, scene: Any) -> None:
        self.scene = scene
        settings = small_settings(checkpoint_interval=300, keep_checkpoints=3, summary_freq=300)
        write_configuration(scene.folder, {"Counter": settings})
        self.program = write_program(scene.folder, "counter")
        self.port = free_port()
        self.record = scene.folder / "ledger"
        self.trainer = self.learn("--force")
        self.relay = self.start_relay()

    def learn(self, *flags: object) -> Process:
        words = [f"--port={self.port}", "--seed=1", "--hooks=exchange_ledger:Ledger", *flags]
        return self.scene.learn(*words, **{LEDGER: str(self.record)})

    def start_relay(self) -> Process:
        return relay(self.scene, self.port, f"--env={self.program}", *NO_LIMIT)

    def kill(self, victim: str) -> None:
        """Kills a process, and does what its user would do."""
        if victim == "build":
            pids = [pid for pid in self.relay.descendants() if b"counter.py" in command_line(pid)]
            for pid in pids:
                send_kill(pid)
            return
        process: Process = getattr(self, victim)
        process.signal(signal.SIGKILL)
        process.end()
        if victim == "relay":
            self.relay = self.start_relay()
        else:
            self.trainer = self.learn("--resume")

    def taken_in(self) -> int:
        return self.record.read_bytes().count(b"\n") if self.record.exists() else 0

    def go_on(self, steps: int = 50) -> None:
        """Waits until the trainer has taken in so many more steps."""
        wanted = self.taken_in() + steps

        def has_gone_on() -> bool:
            assert self.trainer.poll() is None, self.trainer.output[-3000:]
            assert self.relay.poll() is None, self.relay.output[-3000:]
            return self.taken_in() >= wanted

        wait_until(has_gone_on, f"{steps} more steps")

    def finish(self) -> tuple[int, int]:
        """Saves, and plays on undisturbed behind a relay, and without one. Returns the last steps of the two."""
        self.trainer.wait_for_output("Saved ")
        self.trainer.signal(signal.SIGTERM)
        assert self.trainer.end() == 0, self.trainer.output[-3000:]
        assert self.relay.end() == 0, self.relay.output[-3000:]
        results = self.scene.folder / "results"
        shutil.copytree(results / "ppo", results / "undisturbed")
        saved = max(steps_of(results / "ppo"))
        limit = f"--set=behaviors.Counter.max_steps={saved + MORE}"
        self.trainer = self.learn("--resume", limit)
        self.relay = self.start_relay()
        assert self.trainer.end() == 0, self.trainer.output[-3000:]
        assert self.relay.end() == 0, self.relay.output[-3000:]
        local = self.learn("--resume", limit, "--run-id=undisturbed", f"--env={self.program}")
        assert local.end() == 0, local.output[-3000:]
        return max(steps_of(results / "ppo")), max(steps_of(results / "undisturbed"))


def steps_of(run: Path) -> list[int]:
    return [int(path.stem.rpartition("-")[2]) for path in (run / "Counter").glob("Counter-*.safetensors")]


def send_kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wrong_lives(record: Path) -> dict[int, list[int]]:
    """Lives of which a step was taken in twice, out of order or never."""
    return {life: numbers for life, numbers in lives(record).items() if numbers != list(range(len(numbers)))}


@pytest.mark.parametrize("victim", ["relay", "build", "trainer"])
@pytest.mark.thorough
@fault_counts(1, 50, minutes=60)
def test_kills(scene, note, victim: str, count: int) -> None:
    """At random moments: each exchange counts once, and the run ends at the step of an undisturbed one."""
    dice, run = random.Random(count), RelayedRun(scene)
    run.trainer.wait_for_output("Saved ")  # there is something to resume
    for _ in range(count):
        pause(dice.uniform(0.0, 1.5))
        run.kill(victim)
        run.go_on()
    if victim == "build":
        assert "counting begins" in run.trainer.output, "its last words are in the trainer's log"
    relayed, undisturbed = run.finish()
    played = lives(run.record)
    note(
        f"{victim} of a relayed run killed",
        f"{count} × kill −9",
        f"{sum(map(len, played.values()))} steps of {len(played)} lives, {len(wrong_lives(run.record))} lives with one "
        f"lost or repeated; ended at step {relayed}, undisturbed {undisturbed}",
    )
    assert wrong_lives(run.record) == {}
    assert len(played) > count
    assert relayed == undisturbed


@pytest.mark.parametrize("way", ["silent", "refused"])
@fault_counts(None, 30)
def test_a_line_that_is_cut(scene, note, way: str, count: int) -> None:
    """For so many seconds: packets are lost, or connections break and are refused. Every exchange counts once."""
    write_configuration(scene.folder, {"Counter": small_settings()})
    port, record = free_port(), scene.folder / "ledger"
    program = write_program(scene.folder, "counter")
    words = [f"--port={port}", "--seed=1", "--hooks=exchange_ledger:Ledger"]
    trainer = scene.learn(*words, **{LEDGER: str(record)})
    trainer.wait_for_output("Listening on port")
    with Proxy(port) as line:
        carrier = relay(scene, line.port, f"--env={program}")
        for seconds in [count] if count < 5 else [1, 5, count]:
            before = record.read_bytes().count(b"\n") if record.exists() else 0
            wait_until(lambda: record.exists() and record.read_bytes().count(b"\n") > before + 50, "steps")  # noqa: B023
            line.is_cut, line.is_down = way == "silent", way == "refused"
            pause(seconds)
            line.is_cut = line.is_down = False
        before = record.read_bytes().count(b"\n")
        wait_until(lambda: record.read_bytes().count(b"\n") > before + 200, "steps after the cut")
        assert carrier.poll() is None
    note(
        f"the line of a relay cut ({way})",
        f"{count} s",
        f"{len(lives(record))} life, {len(wrong_lives(record))} with a step lost or repeated",
    )
    assert trainer.output.count("Connected to ") == 1
    assert len(lives(record)) == 1
    assert wrong_lives(record) == {}
