"""Sweeps of real runs that are killed, resumed, and whose best trial is run again."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills processes as POSIX does")

RATE = "behaviors.Basic.hyperparameters.learning_rate"
SPACE = f"""
{RATE}: {{low: 1e-4, high: 1e-2, log: true}}
behaviors.Basic.hyperparameters.batch_size: {{choices: [16, 32]}}
"""
NOT_REPEATED = {"wall_s", "steps_per_s"}


def command(trials: int, *others: str, max_steps: int = 1500) -> list[str]:
    return [
        "sweep", "basic", "--space=space.yaml", "--env=sim:basic", "--run-id=s", "--seed=5", f"--trials={trials}",
        f"--set=behaviors.Basic.max_steps={max_steps}", "--set=behaviors.Basic.summary_freq=250",
        "--set=behaviors.Basic.checkpoint_interval=500", "--pruner=none", *others,
    ]  # fmt: skip


def metrics_of(run: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in row.items() if key not in NOT_REPEATED} for row in rows]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 600
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)


def check_sweep(
    start: Callable[..., Any],
    mlagents_style: Callable[..., Any],
    folder: Path,
    trials: int,
    kills: list[str],
    *others: str,
    max_steps: int,
) -> None:
    """Kills a sweep each time that a file appears, resumes it, and runs its best trial again."""
    (folder / "space.yaml").write_text(SPACE)
    resume: list[str] = []
    for file in kills:
        sweep = start(*command(trials, *resume, *others, max_steps=max_steps))
        wait_for(folder / "results" / "s" / file)
        sweep.signal(signal.SIGKILL)
        sweep.end()
        resume = ["--resume"]
    said = mlagents_style(*command(trials, "--resume", "--json", *others, max_steps=max_steps))
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert [trial["state"] for trial in result["trials"]] == ["complete"] * trials
    assert [trial["steps"] for trial in result["trials"]] == [max_steps] * trials
    runs = sorted(each.name for each in (folder / "results" / "s").glob("trial-*"))
    assert runs == [f"trial-{number:04d}" for number in range(trials)]
    best = folder / "results" / "s" / f"trial-{result['best']['number']:04d}"
    again = mlagents_style("learn", result["best_file"], "--run-id=again")
    assert again.code == 0, again.err
    assert metrics_of(folder / "results" / "again") == metrics_of(best)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_killed_sweep_is_resumed_and_its_best_trial_repeats(
    start: Callable[..., Any], mlagents_style: Callable[..., Any], workplace: Path
) -> None:
    kills = ["trial-0001/Basic/Basic-500.safetensors"]
    check_sweep(start, mlagents_style, workplace, 3, kills, max_steps=1500)
