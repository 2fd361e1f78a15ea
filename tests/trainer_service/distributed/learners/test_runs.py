"""Whole runs with two learner ranks: what they learn, who starts them, and what is left where one is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import CommandProcess, ForkedTrainer, Process, small_settings, wait_until, write_configuration

from trainer_service.running.runs.checkpoint import read_content

pytestmark = pytest.mark.process

REPOSITORY = Path(__file__).parents[4]
RANKS = ("--env=sim:basic", "--seed=1", "--num-learners=2")
END_S = 5.0
"""Seconds that no rank may outlive rank 0."""


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    started = Runs(tmp_path)
    yield started
    for each in started.processes:
        each.destroy()


class Runs:
    """Runs in a folder, none of which outlives the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []

    def learn(self, *flags: str, max_steps: int = 10**9, **settings: Any) -> Process:
        """A run of the corridor that was started with these flags."""
        name = f"run-{len(self.processes)}"
        file = write_configuration(
            self.folder / name, {"Basic": small_settings(max_steps=max_steps, **settings)}
        )
        arguments = ["learn", file, "--run-id=basic", *flags]
        self.processes.append(ForkedTrainer(arguments, self.folder, self.folder / f"{name}.log"))
        return self.processes[-1]

    def torchrun(self, *arguments: object, **environment: str) -> Process:
        """A command that torchrun starts twice."""
        # Standalone: a rendezvous on a port of its own, where nobody else's ranks come by.
        line = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            *arguments,
        ]
        log = self.folder / f"torchrun-{len(self.processes)}.log"
        self.processes.append(CommandProcess(line, self.folder, log, **environment))
        return self.processes[-1]

    def weights(self) -> dict[str, torch.Tensor]:
        path = self.folder / "results" / "basic" / "Basic" / "checkpoint.safetensors"
        weights: dict[str, torch.Tensor] = read_content(path)["algorithm"]["network"]
        return weights

    def step(self) -> int:
        path = self.folder / "results" / "basic" / "Basic" / "checkpoint.safetensors"
        return int(read_content(path)["step"])


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def ranks_of(run: Process) -> list[int]:
    """The processes of other learner ranks that a run started."""
    return [pid for pid in run.descendants() if b"learners.rank" in cmdline(pid)]


@pytest.mark.thorough
def test_a_killed_rank_ends_a_run_that_others_resume(runs: Runs) -> None:
    first = runs.learn(*RANKS)
    first.wait_for_output("Step: ")
    (rank,) = ranks_of(first)
    os.kill(rank, signal.SIGKILL)
    assert first.end() == 3, first.output
    assert "learner rank 1 ended (signal 9)" in first.output
    assert "Traceback" not in first.output
    saved = runs.step()
    assert saved > 1000

    alone = runs.learn("--env=sim:basic", "--resume", max_steps=saved + 1200)
    assert alone.end() == 0, alone.output
    assert f"Resuming 'Basic' from step {saved}." in alone.output
    saved = runs.step()
    again = runs.learn("--env=sim:basic", "--resume", "--num-learners=2")
    again.wait_for_output("Step: ")
    ranks = ranks_of(again)
    again.signal(signal.SIGINT)
    assert again.end() == 0, again.output
    assert "Saving what was learned" in again.output
    assert ranks
    assert not set(ranks) & set(again.descendants())
    assert runs.step() > saved


def test_no_rank_outlives_a_killed_trainer(runs: Runs) -> None:
    run = runs.learn(*RANKS)
    run.wait_for_output("Step: ")
    ranks = ranks_of(run)
    assert ranks
    run.signal(signal.SIGKILL)
    run.end()
    wait_until(lambda: not set(ranks) & set(run.descendants()), "the end of all ranks", END_S)


@pytest.mark.thorough
def test_torchrun_starts_a_bundled_run(runs: Runs) -> None:
    config = (
        (REPOSITORY / "configs" / "basic.yaml").read_text().replace("max_steps: 20000", "max_steps: 2000")
    )
    file = runs.folder / "basic.yaml"
    file.write_text(config)
    # Python's own end: it aborts, once in a while, where threads of a process group still run.
    (runs.folder / "sitecustomize.py").write_text(
        "import atexit, os, pathlib\n"
        f"atexit.register(lambda: pathlib.Path({str(runs.folder)!r}, 'end-' + os.environ.get('RANK', '')).touch())\n"
    )
    run = runs.torchrun(
        "-m", "trainer_service", "learn", file, "--env=sim:basic", "--run-id=basic", "--seed=1",
        PYTHONPATH=os.pathsep.join(filter(None, [str(runs.folder), os.environ.get("PYTHONPATH")])),
    )  # fmt: skip
    assert run.end() == 0, run.output
    assert run.output.count("Finished. Everything is in") == 1, "other ranks print nothing"
    assert (runs.folder / "end-0").exists()
    assert not (runs.folder / "end-1").exists(), "a rank that served ends at once"
    assert runs.step() >= 2000
    assert not run.orphans(END_S)
