"""Runs that are interrupted or killed, and simulators that are."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

import pytest
import torch

from trainer_service.stopping import StopSignals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, and simulators that are scripts")

needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes of others")

FOR_EVER = 10**9
CHECKPOINT = Path("results/ppo/Treadmill/checkpoint.pt")


@pytest.fixture
def endless(start, configure, program):
    """Starts a run on the treadmill that ends only when it is told to, and waits until it learns."""
    configure("Treadmill", max_steps=FOR_EVER, summary_freq=180, checkpoint_interval=360)
    treadmill = program("treadmill")

    def begin(*flags: str):
        run = start("learn", "config.yaml", f"--env={treadmill}", "--seed=1", *flags)
        run.until("Step: ")
        return run

    return begin


@pytest.fixture
def resume(mlagents_style, configure, program):
    """Goes on with that run for another few steps."""

    def run():
        steps = saved_step() + 36
        configure("Treadmill", max_steps=steps)
        said = mlagents_style("learn", "config.yaml", f"--env={program('treadmill')}", "--resume", "--seed=1")
        assert said.code == 0, said.err
        assert saved_step() >= steps
        return said

    return run


def saved_step() -> int:
    step: int = torch.load(CHECKPOINT, weights_only=True)["step"]
    return step


def simulator_process() -> int:
    """The id of the simulator that was started last."""
    lines = Path("results/ppo/run_logs/Player-0.log").read_text().splitlines()
    return int([line for line in lines if line.isdecimal()][-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_the_run_which_can_be_resumed(
    endless, resume, number: signal.Signals
) -> None:
    run = endless()
    run.signal(number)
    assert run.end() == 0, run.said
    assert "Traceback" not in run.said
    assert "Interrupted. Everything is in results/ppo" in run.said
    assert "the same command with --resume" in run.said
    assert saved_step() >= 180
    with pytest.raises(ProcessLookupError):
        os.kill(simulator_process(), 0)
    assert "Resuming 'Treadmill' from step" in resume().out


def test_an_interruption_before_any_simulator_came(start, configure, free_port: int) -> None:
    configure("Treadmill")
    run = start("learn", "config.yaml", f"--port={free_port}")
    run.until("Listening on port")
    run.signal(signal.SIGINT)
    assert run.end() == 0, run.said
    assert "Traceback" not in run.said


@needs_pidfd
def test_a_killed_run_takes_its_simulators_along_and_resumes_from_its_last_checkpoint(
    endless, resume
) -> None:
    run = endless()
    run.until("Treadmill-360.pt")
    simulator = os.pidfd_open(simulator_process())
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    ended, _, _ = select.select([simulator], [], [], 60.0)
    os.close(simulator)
    assert ended
    step = saved_step()
    assert step % 360 == 0
    assert f"Resuming 'Treadmill' from step {step}." in resume().out


def test_a_killed_simulator_is_started_again_and_the_run_goes_on(endless) -> None:
    run = endless()
    killed = simulator_process()
    os.kill(killed, signal.SIGKILL)
    reason = run.until("was killed by SIGKILL; starting it again")
    assert f"pid {killed}" in reason
    run.until("Connected to Unity environment")
    run.until("Step: ")
    assert simulator_process() != killed
    run.signal(signal.SIGINT)
    assert run.end() == 0, run.said


def test_a_killed_simulator_that_must_not_be_started_again_ends_the_run_with_all_saved(endless) -> None:
    run = endless("--max-lifetime-restarts=0")
    killed = simulator_process()
    os.kill(killed, signal.SIGKILL)
    assert run.end() == 1
    assert "Traceback" not in run.said
    (message,) = [line for line in run.said.splitlines() if "error: " in line]
    assert f"pid {killed}): was killed by SIGKILL; it was already started again 0 of at most 0" in message
    assert saved_step() >= 180


def test_inference_acts_until_it_is_told_to_stop_and_writes_nothing(
    start, mlagents_style, configure, program
) -> None:
    treadmill = program("treadmill")
    configure("Treadmill", max_steps=18)
    assert mlagents_style("learn", "config.yaml", f"--env={treadmill}").code == 0
    before = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")}
    run = start("learn", "config.yaml", f"--env={treadmill}", "--resume", "--inference")
    run.until("Resuming 'Treadmill' from step 18.")
    assert run.until("Step: ").rstrip().endswith("Not Training.")
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.said
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")} == before


def test_the_first_signal_asks_and_the_second_is_what_it_always_was() -> None:
    # Where a shell started this in its background, Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopSignals() as stop:
            assert not stop.requested
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.requested
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_signals_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_outside_the_main_thread_nothing_ever_asks() -> None:
    outcome = []

    def elsewhere() -> None:
        with StopSignals() as stop:
            outcome.append(stop.requested)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert outcome == [False]
