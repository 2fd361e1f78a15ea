"""Rollout workers that are killed or hang, and runs with workers that are killed or asked to stop."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fault_counts import fault_counts
from processes import HEALTHY, Process, command_line, pause, small_settings, wait_until, write_configuration
from ray_clusters import cluster_of_nodes

pytest.importorskip("ray")

WORKER = b"ray::WorkerProcess"
PAUSE_S = 0.005
AGENTS = 12
GONE_S = 5.0


def prepare(folder: Path, max_steps: int = 10**9, *, stays: bool = False, **distributed: Any) -> str:
    """Writes the configuration of a run with two workers. Returns the flag for its simulator, of twelve agents.

    stays: whether the simulator's process goes on when its connection is gone, as one that hangs does.
    """
    write_configuration(
        folder,
        {"3DBall": small_settings(max_steps=max_steps)},
        distributed={"num_workers": 2, "max_worker_restarts": -1, **distributed},
    )
    simulator = folder / "healthy"
    words = shlex.join([sys.executable, str(HEALTHY), str(PAUSE_S)])
    simulator.write_text(f'#!/bin/sh\n{words} "$@"\n{"exec sleep 1000" if stays else ""}\n')
    simulator.chmod(0o755)
    return f"--env={simulator}"


def worker_pids(run: Process) -> list[int]:
    """Processes of Ray's that are workers of the run, placed already."""
    return [pid for pid in run.descendants() if command_line(pid).startswith(WORKER)]


def children(pid: int) -> list[str]:
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def final_step(folder: Path) -> int:
    return max(int(path.stem.rpartition("-")[2]) for path in folder.rglob("3DBall-*.safetensors"))


def summed(folder: Path, key: str) -> float:
    """A statistic of all summaries together."""
    (path,) = folder.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return float(sum(row.get(f"Distributed/{key}", 0.0) for row in rows))


def how_to_go_on(folder: Path) -> str:
    return "--resume" if list(folder.rglob("checkpoint.safetensors")) else "--force"


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("collection", ["sync", pytest.param("async", marks=pytest.mark.chaos)])
@pytest.mark.thorough
@fault_counts(1, 20, minutes=20)
def test_workers_that_are_killed(scene, note, collection: str, count: int) -> None:
    """One of two, at any moment: also while it starts, and again right after."""
    dice, budget = random.Random(count), AGENTS * (400 + 500 * count)
    env = prepare(scene.folder, budget, collection=collection)
    run = scene.learn(env, "--seed=1")
    run.wait_for_output("Step: ")
    killed: set[int] = set()
    young = 0
    for number in range(count):
        at_once = number % 4 == 3
        if not at_once:
            run.wait_for_output("Step: ", times=run.output.count("Step: ") + 1)
            pause(dice.uniform(0.0, 2.0))
        living = wait_until(
            lambda: len(found := sorted(set(worker_pids(run)) - killed)) == 2 and found,
            "two workers",
        )
        pid = living[-1] if at_once else dice.choice(living)
        young += not children(pid)
        assert kill(pid)
        killed.add(pid)
    code = run.end(600.0)
    orphans, reached = run.orphans(GONE_S), final_step(scene.folder)
    losses = len(re.findall(r"Worker \d+ is lost", run.output))
    note(
        f"rollout workers killed, collection: {collection}",
        f"{len(killed)} × kill −9 of one of two, {young} of them before they had loaded",
        f"exit code {code}, ended at step {reached} of {budget}; {losses} losses noticed, "
        f"{summed(scene.folder, 'Restarts'):.0f} restarts and {summed(scene.folder, 'Lost Steps'):.0f} lost steps "
        f"counted; {len(orphans)} orphans",
    )
    assert code == 0, run.output[-3000:]
    assert len(killed) == losses == summed(scene.folder, "Restarts") == count
    assert reached == budget
    assert summed(scene.folder, "Lost Steps") > 0
    assert not orphans
    assert "Traceback" not in run.output


@fault_counts(None, 3)
def test_a_worker_that_hangs(scene, note, count: int) -> None:
    """SIGSTOP of one of two: it is ended and started again when its time is up."""
    env = prepare(scene.folder)
    run = scene.learn(env, "--seed=1", "--timeout-wait=5")
    noticed = []
    for number in range(count):
        run.wait_for_output(" runs on ", times=2 + number)
        run.wait_for_output("Step: ", times=run.output.count("Step: ") + 1)
        victim = worker_pids(run)[0]
        began = time.monotonic()
        kill(victim, signal.SIGSTOP)
        run.wait_for_output("no answer for", times=number + 1)
        noticed.append(time.monotonic() - began)
        wait_until(lambda: victim not in run.descendants(), "the end of a frozen worker")  # noqa: B023
    run.wait_for_output(" runs on ", times=2 + count)
    run.wait_for_output("Step: ", times=run.output.count("Step: ") + 1)
    run.signal(signal.SIGTERM)
    code = run.end()
    orphans = run.orphans(GONE_S)
    note(
        "a rollout worker that freezes (SIGSTOP), `--timeout-wait=5`",
        f"{count}, one of two",
        f"noticed after {max(noticed):.1f} s at most, started again; exit code {code}, {len(orphans)} orphans",
    )
    assert (code, orphans) == (0, [])
    assert max(noticed) < 60.0


@fault_counts(None, 10, minutes=60)
def test_trainers_with_workers_that_are_killed(scene, note, count: int) -> None:
    """With SIGKILL, at any moment: nothing of them is left after five seconds, and --resume goes on."""
    dice, budget = random.Random(count), AGENTS * 600 * (count + 1)
    env = prepare(scene.folder, budget, stays=True)
    flags = (env, "--seed=1", "--autosave-interval-s=2")
    orphans = starting = 0
    for number in range(count):
        run = scene.learn(*flags, how_to_go_on(scene.folder))
        if number % 3 == 2:
            pause(dice.uniform(0.5, 6.0))
        else:
            run.wait_for_output("Step: ")
            pause(dice.uniform(0.0, 3.0))
        starting += "Step: " not in run.output
        assert run.poll() is None, run.output
        run.signal(signal.SIGKILL)
        run.end()
        left = run.orphans(GONE_S)
        orphans += len(left)
        assert not left, [command_line(pid) for pid in left]
    run = scene.learn(*flags, how_to_go_on(scene.folder))
    code = run.end(600.0)
    reached = final_step(scene.folder)
    note(
        "trainers with rollout workers killed, `--resume` after each",
        f"{count} × kill −9, {starting} of them before the first summary; simulators that do not end by themselves",
        f"{orphans} processes left after {GONE_S:g} s; ended at step {reached} of {budget}, exit code {code}",
    )
    assert code == 0, run.output[-3000:]
    assert reached == budget
    assert orphans == 0


@pytest.mark.parametrize("server", ["raylet", "gcs_server"])
@fault_counts(None, 1)
def test_ray_itself_is_lost(scene, note, server: str, count: int) -> None:
    """Where a process of Ray's is gone, Ray would end the trainer: it saves before."""
    run = scene.learn(prepare(scene.folder), "--seed=1")
    run.wait_for_output("Step: ", times=2)
    (pid,) = (each for each in run.descendants() if server.encode() in command_line(each).split(b"\0")[0])
    began = time.monotonic()
    kill(pid)
    code = run.end()
    took, orphans = time.monotonic() - began, run.orphans(GONE_S)
    saved = bool(list(scene.folder.rglob("checkpoint.safetensors")))
    note(
        f"Ray's {server} killed, with rollout workers",
        f"{count}",
        f"exit code {code} with a reason after {took:.0f} s, saved: {saved}; {len(orphans)} orphans",
    )
    assert (code, saved, orphans) == (1, True, [])
    assert "is gone" in run.output
    assert "Traceback" not in run.output


@fault_counts(None, 2)
def test_a_node_that_is_lost(scene, note, count: int) -> None:
    """One of a cluster's two: its worker goes to the other one, and waits for it to have room if need be."""
    budget, reached, codes, restarts = AGENTS * 4000, [], [], 0.0
    for number in range(count):
        folder = scene.folder / str(number)
        folder.mkdir()
        env = prepare(folder, budget, cpus_per_worker=1 + number % 2)
        with cluster_of_nodes() as cluster:
            (second,) = (node for node in cluster.list_all_nodes() if node is not cluster.head_node)
            run = scene.start(
                sys.executable, "-m", "trainer_service", "learn", folder / "config.yaml", env, "--seed=1",
                f"--results-dir={folder}", f"--ray-address={cluster.address}",
            )  # fmt: skip
            run.wait_for_output("Step: ", times=2)
            cluster.remove_node(second, allow_graceful=False)
            codes.append(run.end(300.0))
        reached.append(final_step(folder))
        restarts += summed(folder, "Restarts")
    note(
        "a node with a rollout worker lost",
        f"{count} × one of two; in every second run the other one has no room",
        f"exit codes {codes}, ended at steps {reached} of {budget}; {restarts:.0f} restarts",
    )
    assert set(codes) == {0}
    assert set(reached) == {budget}
    assert restarts >= count
