"""Saves beside the loop: large ones, trainers that are killed and signals while one is written."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_counts import fault_counts
from processes import HealthySimulator, Process, free_port, small_settings, wait_until, write_configuration

from trainer_service.config import parse_run_options
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.interop.mlagents_checkpoint import load_source
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.replay_file import ReplayFile
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.recorder import Outputs, Recorder
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

LARGE = {"hidden_units": 2900, "num_layers": 2}
"""Layers of 8.4 million weights each for actor and critic; with Adam's moments 200 MB."""
SAC = {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 32,
        "buffer_size": 2000,
        "buffer_init_steps": 200,
        "steps_per_update": 20,
        "save_replay_buffer": True,
    },
}
TOGETHER = "'Basic' continues with its replay buffer."
APART = re.compile(r"'Basic' continues from step (\d+) with a replay buffer that was saved at step (\d+)")


def a_moment(dice: random.Random, longest_s: float) -> None:
    moment = time.monotonic() + dice.uniform(0.0, longest_s)
    wait_until(lambda: time.monotonic() >= moment, "a moment")


def megabytes(*paths: Path) -> float:
    return sum(path.stat().st_size for path in paths) / 1e6


def served(scene, **settings: Any) -> tuple[Process, HealthySimulator, float]:
    """A run, the healthy simulator that it serves, and the moment from which waits count."""
    write_configuration(scene.folder, {"3DBall": small_settings(**settings)})
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1")
    run.wait_for_output("Listening on port")
    healthy = scene.healthy(port, pause_s=0.005)
    run.wait_for_output("Connected new brain: 3DBall")
    healthy.go_on()
    return run, healthy, time.monotonic()


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_large_checkpoint(scene, note) -> None:
    """No update falls in between, so waits are those of acting and of saving."""
    hyper = {"batch_size": 64, "buffer_size": 10**7}
    run, healthy, began = served(
        scene, network_settings=LARGE, hyperparameters=hyper, checkpoint_interval=6000, keep_checkpoints=1
    )
    healthy.go_on(200)
    quiet = healthy.longest_wait(began)
    run.wait_for_output("Saved ", times=3, timeout_s=300)
    waited = healthy.longest_wait(began)
    (checkpoint,) = scene.folder.rglob("checkpoint.safetensors")
    note(
        f"a checkpoint of {megabytes(checkpoint):.0f} MB is saved",
        "3 saves",
        f"the healthy one waited {waited:.2f} s at most, and {quiet:.2f} s before the first save",
    )
    assert run.poll() is None, run.output


WIDE = BehaviorSpec((ObservationSpec("o", (2048,)),), ActionSpec(0, (3,)))
ROWS, STEPS = 250_000, 64
"""Rows of 8 KB, and steps of a trajectory."""


def a_trajectory(number: int) -> Trajectories:
    seen = np.full((STEPS + 1, 2048), number, np.float32)
    return Trajectories(
        observations=(seen[1:],),
        continuous_actions=np.zeros((STEPS, 0), np.float32),
        discrete_actions=np.zeros((STEPS, 1), np.int64),
        allowed_actions=np.ones((STEPS, 3), np.bool_),
        log_probs=np.zeros(STEPS, np.float32),
        memories=np.zeros((STEPS, 0), np.float32),
        rewards=np.zeros(STEPS, np.float32),
        group_rewards=np.zeros(STEPS, np.float32),
        lengths=np.array([STEPS]),
        final_observations=(seen[:1],),
        final_allowed_actions=np.ones((1, 3), np.bool_),
        final_memories=np.zeros((1, 0), np.float32),
        terminated=np.array([False]),
    )


def memory(of: str) -> float:
    """Megabytes of this process: ``VmRSS`` now, ``VmHWM`` at most since the last ``clear_refs``."""
    (found,) = re.findall(rf"{of}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found) * 1024 / 1e6


class Life:
    """A loop that records experience and saves it, as that of a run does."""

    def __init__(self, folder: RunFolder) -> None:
        tuning = {"save_replay_buffer": True, "buffer_size": ROWS}
        settings = {"trainer_type": "dqn", "hyperparameters": tuning, "checkpoint_interval": 10**9}
        options = parse_run_options({"behaviors": {"B": {**settings, "max_steps": 10**9}}}).options
        self.behavior = Behavior("B", WIDE, options.behaviors["B"], Compute(torch.device("cpu"), 1))
        outputs = Outputs(folder, Console(tty=False), [], Timers())
        self.records = Recorder(outputs, TrainingStatus(), autosave_s=float("inf"))
        self.records.add(self.behavior)
        self.folder = folder
        self.trajectories = 0

    def learn(self) -> None:
        self.behavior.learner.record(a_trajectory(self.trajectories))
        self.behavior.step += STEPS
        self.trajectories += 1

    def pause(self, loops: int) -> float:
        """Seconds of the longest of so many loops, or of those until everything is saved."""
        longest = 0.0
        for number in range(loops):
            if number > 100 and not self.records._saving.is_saving("B"):
                break
            began = time.perf_counter()
            if number % 32 == 0:
                self.learn()
            self.records.write_due(self.behavior)
            longest = max(longest, time.perf_counter() - began)
            time.sleep(0.002)
        return longest

    def save(self) -> tuple[float, float, float, float]:
        """The longest pause while it autosaves; megabytes written, and of memory before and at most."""
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmRSS")
        began = time.time_ns()
        self.records._autosave_at["B"] = 0.0
        longest = self.pause(10**6)
        written = [path for path in self.folder.behavior("B").iterdir() if path.stat().st_mtime_ns >= began]
        return longest, megabytes(*written), before, memory("VmHWM")


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_large_replay_buffer(tmp_path: Path, note) -> None:
    """The buffer is full, and goes on being overwritten while it is saved."""
    with RunFolder.open(tmp_path, "run") as folder:
        life = Life(folder)
        while life.trajectories * STEPS < ROWS + 1000:
            life.learn()
        quiet = life.pause(100)
        first, whole, before, most = life.save()
        for _ in range(300):
            life.learn()
        second, changed, _, most_of_second = life.save()
        expected = {
            name: np.array(rows) for name, rows in (life.behavior.learner.replay_state() or {}).items()
        }
        life.records.autosave([life.behavior])
        saved: dict[str, Any] = {}
        ReplayFile(folder.replay("B")).load(saved.update)
    note(
        f"a replay buffer of {whole:.0f} MB is saved",
        "2 autosaves, with 19,200 steps and those of the first save in between",
        f"the loop paused {1000 * max(first, second):.0f} ms at most, and {1000 * quiet:.0f} ms without a save; "
        f"{whole:.0f} MB were written, then {changed:.0f}; memory was {before:.0f} MB before and "
        f"{max(most, most_of_second):.0f} MB at most",
    )
    assert changed < whole / 2
    assert max(most, most_of_second) < before + whole / 4
    assert all(np.array_equal(saved[name], array) for name, array in expected.items())


@fault_counts(2, 60, minutes=60)
def test_a_trainer_killed_with_a_replay_buffer(scene, note, count: int) -> None:
    """State and buffer are of one moment at every resume, or both steps are told."""
    dice = random.Random(count)
    settings = small_settings(checkpoint_interval=100, keep_checkpoints=2, summary_freq=300, **SAC)
    write_configuration(scene.folder, {"Basic": settings})
    flags = ("--env=sim:basic", "--seed=1", "--num-envs=2")
    run = scene.learn(*flags, "--force")
    run.wait_for_output("Saved ")
    together = apart = unreadable = 0
    for _ in range(count):
        run.wait_for_output("Saved ")
        a_moment(dice, 0.5)
        run.signal(signal.SIGKILL)
        run.end()
        run.orphans()
        for path in scene.folder.rglob("*.safetensors"):
            try:
                load_source(path)
            except Exception:
                unreadable += 1
        run = scene.learn(*flags, "--resume")
        run.wait_for_output("continues ")
        run.wait_for_output("Saved ")
        told = APART.search(run.output)
        together += TOGETHER in run.output
        apart += told is not None and told[1] != told[2]
    run.signal(signal.SIGTERM)
    code = run.end()
    left = list(scene.folder.rglob("*.tmp"))
    note(
        "trainer killed while it saves a replay buffer, too",
        f"{count} × kill −9; a save every 100 steps",
        f"{together} resumed with a buffer of the same moment, {apart} with another, which was told; "
        f"{unreadable} unreadable files; {len(left)} temporary files",
    )
    assert code == 0, run.output
    assert (together + apart, unreadable, left) == (count, 0, [])


def test_a_signal_while_a_save_is_written(scene, note) -> None:
    write_configuration(scene.folder, {"Basic": small_settings(checkpoint_interval=300, summary_freq=100)})
    run = scene.learn("--env=sim:basic", "--seed=1", before="fault_injection:write_slowly")
    run.wait_for_output("writing")
    run.signal(signal.SIGTERM)
    code = run.end()
    checkpoints = scene.folder / "results" / "ppo" / "Basic"
    steps = {load_source(path).step for path in checkpoints.glob("Basic-*.safetensors")}  # type: ignore[union-attr]
    last = load_source(checkpoints / "checkpoint.safetensors").step  # type: ignore[union-attr]
    note(
        "SIGTERM while a save is written",
        "a disk that takes a second for each",
        f"exit code {code}; checkpoints of steps {sorted(steps)}; {len(run.orphans())} orphans",
    )
    assert code == 0, run.output
    assert min(steps) < 400
    assert last == max(steps)
    assert f"Saved {checkpoints.relative_to(scene.folder)}/Basic-{last}.safetensors" in run.output
    assert not list(scene.folder.rglob("*.tmp"))
