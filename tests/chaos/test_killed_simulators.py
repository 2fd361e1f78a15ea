"""Launched simulators that are killed, frozen, or spoken for by strangers."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

from fault_counts import fault_counts
from processes import Process, command_line, pause, small_settings, steps, write_configuration

NO_LIMIT = ("--max-lifetime-restarts=-1", "--restarts-rate-limit-n=-1")


def sim_pids(run: Process) -> list[int]:
    """The launched simulators that live; nothing else that a run starts lasts."""
    return [pid for pid in run.descendants() if b"mlagents-port" in command_line(pid)]


@fault_counts(1, 50, minutes=60)
def test_simulators_that_are_killed(scene, note, count: int) -> None:
    """One of four, at any moment: also while it starts up, and again right after."""
    dice, budget = random.Random(count), 4000 * count + 8_000
    write_configuration(scene.folder, {"3DBall": small_settings(max_steps=budget)})
    run = scene.learn("--env=sim:3dball", "--num-envs=4", "--seed=1", *NO_LIMIT)
    run.wait_for_output("Step: ")
    killed: set[int] = set()
    booting = 0
    while len(killed) < count and run.poll() is None:
        pause(dice.choice([0.0, 0.05, dice.uniform(0.0, 1.0)]))
        living = [pid for pid in sim_pids(run) if pid not in killed]
        if not living:
            continue
        pid = max(living) if len(killed) % 2 else dice.choice(living)  # the youngest is often still booting
        age = time.time() - os.stat(f"/proc/{pid}").st_mtime if os.path.exists(f"/proc/{pid}") else 1.0
        booting += age < 0.5
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed.add(pid)
    code = run.end(600.0)
    orphans, reached = run.orphans(), max(steps(run.output))
    blamed = {int(pid) for pid in re.findall(r"pid (\d+)\)", run.output)}
    note(
        "launched simulators killed",
        f"{len(killed)} × kill −9 of one of four, {booting} of them in their first half second",
        f"exit code {code}, ended at step {reached} of {budget}; {len(blamed - killed)} others lost; "
        f"{len(orphans)} orphans",
    )
    assert code == 0, run.output[-3000:]
    assert len(killed) == count
    assert budget <= final_step(scene.folder) < budget + 60
    assert not blamed - killed
    assert not orphans


def final_step(folder: Path) -> int:
    return max(int(path.stem.rpartition("-")[2]) for path in folder.rglob("3DBall-*.safetensors"))
