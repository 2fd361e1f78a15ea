"""A run of a case: the trainer's command line in this process, the world in one of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

import yaml

from learning.cases import DEMONSTRATIONS, Case
from learning.demonstrations import record
from learning.results import Episode, Result, final_mean, read_episodes, steps_to

_CHECKOUT = Path(__file__).resolve().parents[2]
_LAST_LINES = 5


def run_case(case: Case, seed: int) -> Result:
    """Trains with a full ``learn`` in a folder of its own, of which nothing stays.

    torch stays loaded, so the next run of this process begins within a second.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="learning-") as name:
        folder = Path(name)
        if case.demonstrated is not None:
            record(case.demonstrated, folder / DEMONSTRATIONS, seed)
        failure = _learn(case, seed, folder)
        episodes = read_episodes(folder / "episodes")
    return measured(case, seed, episodes, time.perf_counter() - started, failure)


def measured(case: Case, seed: int, episodes: list[Episode], seconds: float, failure: str | None) -> Result:
    """The result of a run with these episodes."""
    sides = [
        [episode for episode in episodes if episode.side == side] for side in range(len(case.world.behaviors))
    ]
    finals = [final_mean(side) for side in sides]
    rounded = [None if final is None else round(final, 4) for final in finals]
    return Result(
        case=case.name,
        seed=seed,
        final=rounded[0],
        other_final=rounded[1] if len(rounded) > 1 else None,
        passed=failure is None and case.met_by(finals),
        steps_to_threshold=_steps_to(case, sides),
        seconds=round(seconds, 1),
        failure=failure,
    )


def _steps_to(case: Case, sides: list[list[Episode]]) -> int | None:
    if case.threshold is None:
        return None
    reached = [steps_to(case.threshold, side) for side in sides]
    times = [steps for steps in reached if steps is not None]
    if case.one_fails:
        return min(times, default=None)
    return max(times) if len(times) == len(sides) else None


def write_run(case: Case, folder: Path) -> list[str]:
    """Writes the configuration and the simulator's program; returns what a trainer is told, without its seed."""
    config, program = folder / "config.yaml", folder / "line.x86_64"
    text = yaml.safe_dump({"behaviors": {name: dict(case.settings) for name in case.world.names}})
    config.write_text(text.replace(DEMONSTRATIONS, str(folder / DEMONSTRATIONS)), encoding="utf-8")
    world = [sys.executable, "-m", "learning.program", "--world", case.world.to_json()]
    packages = os.pathsep.join(map(str, (_CHECKOUT, _CHECKOUT / "benchmarks")))
    program.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(packages)}\n"
        f'exec {shlex.join([*world, "--episodes", str(folder / "episodes")])} "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return [str(config), f"--env={program}", "--run-id=run", f"--results-dir={folder}", "--torch-device=cpu"]


def _learn(case: Case, seed: int, folder: Path) -> str | None:
    """None, or the last words of a run that failed."""
    from trainer_service.cli import main

    arguments = ["learn", *write_run(case, folder), f"--seed={seed}"]
    log = folder / "log"
    with (
        log.open("w", encoding="utf-8") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        code = main(arguments)
    said = log.read_text(encoding="utf-8").splitlines()
    if code:
        return " / ".join(said[-_LAST_LINES:])
    return next((line for line in said if "was interrupted" in line), None)
