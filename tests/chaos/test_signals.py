"""Ctrl-C, SIGTERM and a closed terminal at any moment, once and twice."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter

import pytest
from fault_counts import fault_counts
from processes import Process, pause, small_settings, unreadable, write_configuration

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLOWEST_S = 60.0
"""A bound against a hang; the figure is in the table."""


def start(scene, number: int) -> Process:
    write_configuration(scene.folder, {"Basic": small_settings(checkpoint_interval=2400, summary_freq=200)})
    flags = ("--env=sim:basic", "--num-envs=2", "--seed=1", f"--run-id=run-{number}", "--force")
    return scene.learn(*flags, cold=number % 5 == 4)  # what a user starts loads torch first


def checkpoints(scene, number: int) -> int:
    return len(list((scene.folder / "results" / f"run-{number}").rglob("checkpoint.safetensors")))


@fault_counts(2, 100, minutes=90)
def test_a_signal_at_any_moment(scene, note, count: int) -> None:
    """A third of them while the run starts up."""
    dice, codes, took = random.Random(count), Counter[int](), []
    orphans = damaged = unsaved = tracebacks = starting = 0
    for number in range(count):
        run = start(scene, number)
        if number % 3 == 2:
            pause(dice.uniform(0.3, 3.0))
        else:
            run.wait_for_output("Step: ")
            pause(dice.uniform(0.0, 1.0))
        was_learning = "Step: " in run.output
        starting += not was_learning
        asked = time.monotonic()
        run.signal(ALL[number % len(ALL)])
        codes[run.end(SLOWEST_S)] += 1
        took.append(time.monotonic() - asked)
        orphans += len(run.orphans())
        damaged += unreadable(scene.folder / "results" / f"run-{number}")
        unsaved += was_learning and not checkpoints(scene, number)
        tracebacks += "Traceback" in run.output
    note(
        "SIGINT, SIGTERM, SIGHUP",
        f"{count}, {starting} of them while starting",
        f"out in {sorted(took)[len(took) // 2]:.1f} s (median), {max(took):.1f} s at most; exit codes "
        f"{', '.join(f'{n} × {code}' for code, n in sorted(codes.items()))}; {unsaved} without a checkpoint, "
        f"{damaged} unreadable files, {orphans} orphans, {tracebacks} tracebacks",
    )
    assert (orphans, damaged, unsaved, tracebacks) == (0, 0, 0, 0)


@pytest.mark.thorough
@fault_counts(1, 50, minutes=60)
def test_a_second_signal(scene, note, count: int) -> None:
    """Soon after the first: the run ends at once, with 128 + its number."""
    dice, codes, took = random.Random(count), Counter[int](), []
    orphans = damaged = finished = tracebacks = 0
    for number in range(count):
        run = start(scene, number)
        run.wait_for_output("Step: ")
        pause(dice.uniform(0.0, 0.5))
        run.signal(signal.SIGINT)
        pause(dice.uniform(0.1, 0.4))  # sooner they are one press of the key
        finished += run.poll() is not None
        asked = time.monotonic()
        run.signal(signal.SIGINT)
        code = run.end(SLOWEST_S)
        codes[code] += 1
        took.append(time.monotonic() - asked)
        orphans += len(run.orphans())
        damaged += unreadable(scene.folder / "results" / f"run-{number}")
        tracebacks += "Traceback" in run.output
    note(
        "a second Ctrl-C",
        f"{count}, 0.1 to 0.4 s after the first; {finished} were over by then",
        f"out in {max(took):.1f} s at most; exit codes "
        f"{', '.join(f'{n} × {code}' for code, n in sorted(codes.items()))}; {damaged} unreadable files, "
        f"{orphans} orphans, {tracebacks} tracebacks",
    )
    assert (orphans, damaged, tracebacks) == (0, 0, 0)
    assert set(codes) <= {130, -signal.SIGINT, 0}  # a shell calls both of the first two 130
    assert codes[0] <= finished + 1 + count // 10  # who was about to end anyway
