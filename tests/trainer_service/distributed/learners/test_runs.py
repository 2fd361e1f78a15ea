"""Whole runs with two learner ranks: what they learn, who starts them, and what is left where one is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from processes import Process, command_line, wait_until
from run_files import checkpoint

FOR_EVER = 10**9
RANKS = ("--env=sim:basic", "--seed=1", "--num-learners=2")
END_S = 5.0
"""Seconds that no rank may outlive rank 0."""


def ranks_of(run: Process) -> list[int]:
    """The processes of other learner ranks that a run started."""
    return [pid for pid in run.descendants() if b"learners.rank" in command_line(pid)]


def step() -> int:
    return int(checkpoint("ppo", "Basic")["step"])


@pytest.mark.thorough
def test_a_killed_rank_ends_a_run_that_others_resume(start, configure) -> None:
    configure("Basic", max_steps=FOR_EVER)
    first = start("learn", "config.yaml", *RANKS)
    first.wait_for_output("Step: ")
    (rank,) = ranks_of(first)
    os.kill(rank, signal.SIGKILL)
    assert first.end() == 3, first.output
    assert "learner rank 1 ended (signal 9)" in first.output
    assert "Traceback" not in first.output

    saved = step()
    configure("Basic", max_steps=saved + 1200)
    alone = start("learn", "config.yaml", "--env=sim:basic", "--resume")
    assert alone.end() == 0, alone.output
    assert f"Resuming 'Basic' from step {saved}." in alone.output
    saved = step()
    configure("Basic", max_steps=FOR_EVER)
    again = start("learn", "config.yaml", *RANKS, "--resume")
    again.wait_for_output("Step: ")
    ranks = ranks_of(again)
    again.signal(signal.SIGINT)
    assert again.end() == 0, again.output
    assert "Saving what was learned" in again.output
    assert ranks
    assert not set(ranks) & set(again.descendants())
    assert step() > saved


def test_no_rank_outlives_a_killed_trainer(start, configure) -> None:
    configure("Basic", max_steps=FOR_EVER)
    run = start("learn", "config.yaml", *RANKS)
    run.wait_for_output("Step: ")
    ranks = ranks_of(run)
    assert ranks
    run.signal(signal.SIGKILL)
    run.end()
    wait_until(lambda: not set(ranks) & set(run.descendants()), "the end of all ranks", END_S)


@pytest.mark.thorough
def test_torchrun_starts_a_run(start, configure, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("Basic", max_steps=2000)
    # Python's own end: it aborts, once in a while, where threads of a process group still run.
    (workplace / "sitecustomize.py").write_text(
        "import atexit, os, pathlib\n"
        f"atexit.register(lambda: pathlib.Path({str(workplace)!r}, 'end-' + os.environ.get('RANK', '')).touch())\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(workplace), os.environ["PYTHONPATH"])))
    # Standalone: a rendezvous on a port of its own, where nobody else's ranks come by.
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    line = (*torchrun, "-m", "trainer_service", "learn", config, "--env=sim:basic", "--seed=1")
    run = start(*line, program=sys.executable)
    assert run.end() == 0, run.output
    assert run.output.count("Finished. Everything is in") == 1, "other ranks print nothing"
    assert (workplace / "end-0").exists()
    assert not (workplace / "end-1").exists(), "a rank that served ends at once"
    assert step() >= 2000
    assert not run.orphans(END_S)
