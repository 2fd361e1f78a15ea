"""Runs that are interrupted or killed, and simulators that are."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from trainer_service.running.runs.checkpoint import read_content
from trainer_service.running.training import stop_signals as stopping
from trainer_service.running.training.stop_signals import StopSignals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals, and simulators that are scripts")


needs_scheduler_signals = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has none")

FOR_EVER = 10**9
CHECKPOINT = Path("results/ppo/Treadmill/checkpoint.safetensors")


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
    step: int = read_content(CHECKPOINT)["step"]
    return step


def simulator_process() -> int:
    """The id of the simulator that was started last."""
    lines = Path("results/ppo/run_logs/Player-0.log").read_text().splitlines()
    return int([line for line in lines if line.isdecimal()][-1])


def test_a_signal_ends_a_run_that_can_be_resumed(endless, resume) -> None:
    run = endless()
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.output
    assert "Traceback" not in run.output
    assert "Interrupted. Everything is in results/ppo" in run.output
    assert "the same command with --resume" in run.output
    assert saved_step() >= 180
    with pytest.raises(ProcessLookupError):
        os.kill(simulator_process(), 0)
    assert "Resuming 'Treadmill' from step" in resume().out


@needs_scheduler_signals
def test_sigusr1_saves_and_the_run_goes_on_until_sigusr2(endless, resume) -> None:
    run = endless()
    simulator = simulator_process()
    run.signal(signal.SIGUSR1)
    run.until("Saved on SIGUSR1. The run continues.")
    step = saved_step()
    assert step >= 180
    os.kill(simulator, signal.SIGUSR1)  # a scheduler sends it to every process of a job
    run.until("Step: ")
    run.signal(signal.SIGUSR2)
    assert run.end() == 0, run.output
    assert "was killed" not in run.output
    assert saved_step() > step
    resume()


def test_inference_acts_until_stopped_and_writes_nothing(start, mlagents_style, configure, program) -> None:
    treadmill = program("treadmill")
    configure("Treadmill", max_steps=18)
    assert mlagents_style("learn", "config.yaml", f"--env={treadmill}").code == 0
    before = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")}
    run = start("learn", "config.yaml", f"--env={treadmill}", "--resume", "--inference")
    run.until("Resuming 'Treadmill' from step 18.")
    assert run.until("Step: ").rstrip().endswith("Not Training.")
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.output
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")} == before


def test_a_long_update_is_interrupted_and_its_steps_are_saved(
    mlagents_style, configure, program, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = {"batch_size": 32, "buffer_size": 128, "num_epoch": 10**6}
    configure("Treadmill", hyperparameters=tuning)
    look, looks = StopSignals.raise_if_overdue, []

    def interrupted(self: StopSignals) -> None:
        looks.append(self)
        if len(looks) == 3:  # after some gradient steps
            os.kill(os.getpid(), signal.SIGINT)
        look(self)

    monkeypatch.setattr(StopSignals, "raise_if_overdue", interrupted)
    monkeypatch.setattr(stopping, "_UPDATE_GRACE_S", 0.05)
    said = mlagents_style("learn", "config.yaml", f"--env={program('treadmill')}", "--seed=1")
    assert said.code == 0
    assert "An update that takes longer was broken off" in said.out
    assert "Waiting for 1 simulator to leave." in said.out
    before, after = (
        read_content(path)["algorithm"]["network"]
        for path in (CHECKPOINT.with_name("Treadmill-102.safetensors"), CHECKPOINT)
    )
    assert any(not torch.equal(after[name], weights) for name, weights in before.items())


def test_who_wants_no_end_with_the_terminal_gets_none() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


@needs_scheduler_signals
@pytest.mark.parametrize("name", ["SIGUSR2", "SIGXCPU", "SIGALRM"])
def test_a_schedulers_signal_asks_a_process_of_ours_again_and_again(name: str) -> None:
    number = signal.Signals[name]
    before = signal.signal(number, signal.SIG_DFL)  # pytest's limit of time is a SIGALRM
    try:
        with StopSignals(owns_process=True) as stop:
            os.kill(os.getpid(), number)
            assert stop.requested
            assert stop.first_signal == name
            threading.Event().wait(2 * stopping._SAME_REQUEST_S)  # what comes later is another request
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


@needs_scheduler_signals
@pytest.mark.parametrize("owns_process", [False, True])
def test_signals_that_a_caller_handles_are_left_to_it(owns_process: bool) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with StopSignals(owns_process=owns_process) as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not stop.take_save_request()
            if not owns_process:
                assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


def test_signals_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_where_a_person_works_the_second_signal_is_an_exception() -> None:
    with StopSignals(ends_process=False) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        signal.raise_signal(signal.SIGINT)  # a copy of the same request
        with pytest.raises(KeyboardInterrupt):
            _signal_until_raised()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _signal_until_raised() -> None:
    while True:
        signal.raise_signal(signal.SIGINT)
