"""Trainers that are killed at any moment, and checkpoints that are damaged: what ``--resume`` makes of them."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fault_counts import fault_counts
from processes import pause, small_settings, wait_until, write_configuration

from trainer_service.running.interop.mlagents_checkpoint import load_source
from trainer_service.running.runs.checkpoint import Checkpoint

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
    unreadable, lost, orphans, resumed, starting = 0, 0, 0, 0, 0
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
        for path in checkpoints.rglob("*.safetensors"):
            try:
                load_source(path)
            except Exception:
                unreadable += 1
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
        f"{unreadable} unreadable files; {resumed} resumed, {lost} from older than the last that was announced; "
        f"{orphans} orphans; {len(left)} temporary files; {len(numbered(checkpoints))} checkpoints of {KEPT} kept",
    )
    assert code == 0, run.output
    assert (unreadable, lost, orphans, left) == (0, 0, 0, [])
    assert len(numbered(checkpoints)) <= KEPT + 1


@fault_counts(None, 100, minutes=60)
def test_a_newest_checkpoint_that_is_damaged(scene, note, count: int) -> None:
    """Cut at any length, or one bit flipped: the next older one is taken, unless nothing that counts was hit."""
    dice, checkpoints = random.Random(count), prepare(scene.folder)
    run = scene.learn(*FLAGS, "--force")
    run.wait_for_output("Saved ", times=KEPT)
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    whole = shutil.copytree(scene.folder / "results", scene.folder / "whole")
    newest, *older = sorted(numbered(checkpoints), reverse=True)
    sound = load_source(checkpoints / "checkpoint.safetensors")
    flipped = scene.folder / "flipped.safetensors"
    fell_back = harmless = 0
    for number in range(count):
        shutil.rmtree(scene.folder / "results")
        shutil.copytree(whole, scene.folder / "results")
        data = bytearray((checkpoints / "checkpoint.safetensors").read_bytes())
        if number % 2:
            data = data[: dice.randrange(len(data))]
        else:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        for path in (checkpoints / "checkpoint.safetensors", numbered(checkpoints)[newest]):
            path.write_bytes(data)
        flipped.write_bytes(data)
        run = scene.learn(*FLAGS, "--resume")
        wait_until(lambda: RESUMED.search(run.output) or run.poll() is not None, "a start")  # noqa: B023
        found = RESUMED.search(run.output)
        fell_back += found is not None and int(found[1]) == older[0] and "damaged" in run.output
        harmless += found is not None and int(found[1]) == newest and alike(load_source(flipped), sound)
        run.destroy()
    note(
        "newest checkpoint cut or a bit flipped, and `--resume`",
        f"{count // 2} lengths, {count - count // 2} bits",
        f"{fell_back} went on from the one before it and said so, "
        f"{harmless} from the newest, whose contents are as before",
    )
    assert fell_back + harmless == count


def alike(one: Any, other: Any) -> bool:
    """Whether two checkpoints, or parts of them, say the same to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, Checkpoint):
        parts = ("behavior", "step", "spec", "settings", "algorithm")
        return all(alike(getattr(one, part), getattr(other, part)) for part in parts)
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


@fault_counts(None, 10)
def test_a_newest_checkpoint_that_is_missing(scene, note, count: int) -> None:
    checkpoints = prepare(scene.folder)
    run = scene.learn(*FLAGS, "--force")
    run.wait_for_output("Saved ", times=KEPT)
    went_on = 0
    for _ in range(count):
        run.signal(signal.SIGTERM)
        assert run.end() == 0
        (checkpoints / "checkpoint.safetensors").unlink()
        newest = max(numbered(checkpoints))
        run = scene.learn(*FLAGS, "--resume")
        run.wait_for_output("Saved ")
        went_on += RESUMED.findall(run.output) == [str(newest)]
    note(
        "`checkpoint.safetensors` missing beside numbered ones",
        f"{count}",
        f"{went_on} went on from the newest of them",
    )
    assert went_on == count
