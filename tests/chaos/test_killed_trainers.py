"""Trainers that are killed at any moment, and checkpoints that are damaged: what ``--resume`` makes of them."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path

from fault_counts import fault_counts
from processes import pause, small_settings, unreadable, write_configuration

SAVED = re.compile(r"Saved \S+-(\d+)\.safetensors")
RESUMED = re.compile(r"Resuming 'Basic' from step (\d+)")
INTERVAL = 300
"""Agent steps between two checkpoints: half a second to a second."""
KEPT = 3

FLAGS = ("--env=sim:basic", "--seed=1", "--num-envs=2")


def prepare(folder: Path) -> Path:
    """Configures a run that never ends. Returns where its checkpoints will be."""
    settings = small_settings(checkpoint_interval=INTERVAL, keep_checkpoints=KEPT, summary_freq=INTERVAL)
    write_configuration(folder, {"Basic": settings})
    return folder / "results" / "ppo" / "Basic"


def numbered(folder: Path) -> dict[int, Path]:
    return {int(path.stem.rpartition("-")[2]): path for path in folder.glob("Basic-*.safetensors")}


@fault_counts(1, 200, minutes=120)
def test_a_trainer_that_is_killed(scene, note, count: int) -> None:
    """The trainer is killed at random moments from its start on, while it saves twice a second."""
    dice, checkpoints = random.Random(count), prepare(scene.folder)
    run = scene.learn(*FLAGS, "--force")
    run.wait_for_output("Saved ")
    spoilt, lost, orphans, resumed, starting = 0, 0, 0, 0, 0
    known = 0
    for number in range(count):
        if number % 8 == 7:  # while it starts up
            pause(run.began + dice.uniform(0.0, 1.5) - time.monotonic())
            starting += "Step:" not in run.output
        else:
            run.wait_for_output("Saved ")
            pause(dice.uniform(0.0, 1.5))
        run.signal(signal.SIGKILL)
        run.end()
        known = max([known, *map(int, SAVED.findall(run.output))])
        orphans += len(run.orphans())
        spoilt += unreadable(checkpoints)
        run = scene.learn(*FLAGS, "--resume")
        if number % 8 != 6:
            run.wait_for_output("Saved ")
            (step,) = map(int, RESUMED.findall(run.output))
            resumed += 1
            lost += step < known
    run.wait_for_output("Saved ", times=2)
    run.signal(signal.SIGTERM)
    code = run.end()
    left = list(scene.folder.rglob("*.tmp"))
    note(
        "trainer killed, `--resume` after each",
        f"{count} × kill −9, {starting} of them while starting; a save every {INTERVAL} steps",
        f"{spoilt} unreadable files; {resumed} resumed, {lost} from older than the last that was announced; "
        f"{orphans} orphans; {len(left)} temporary files; {len(numbered(checkpoints))} checkpoints of {KEPT} kept",
    )
    assert code == 0, run.output
    assert (spoilt, lost, orphans, left) == (0, 0, 0, [])
    assert len(numbered(checkpoints)) <= KEPT + 1
