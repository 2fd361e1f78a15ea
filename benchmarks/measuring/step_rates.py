"""Rows of the comparison of speeds with Stable-Baselines3 and SBX, and runs of each of the three."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import yaml

from measuring.contest import last_json
from measuring.report import aligned, times_faster
from measuring.scenes import CHECKOUT
from measuring.timed import RunFailed, run_timed

LIMIT_S = 1200.0
"""How long a run may take."""
ROLLOUT, EPOCHS, MINIBATCH = 2048, 10, 256
"""Of PPO, on all sides."""
OTHERS = {"stable_baselines3": "Stable-Baselines3", "sbx": "SBX"}
"""The compared libraries: their modules, and their names."""
TRAINERS = ("ours", *OTHERS)
_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
"""A program that computes until its parent is gone, however that ends."""


@dataclass(frozen=True, slots=True)
class Row:
    """Settings that all three have in common."""

    name: str
    learner: Literal["ppo", "sac"]
    env: str
    copies: int
    units: int
    steps: int

    @property
    def title(self) -> str:
        copies = "1 copy" if self.copies == 1 else f"{self.copies} copies"
        return f"{self.learner.upper()}, {self.env}, {copies}"


ROWS = (
    Row("cartpole", "ppo", "CartPole-v1", 8, 64, 40 * ROLLOUT),
    Row("halfcheetah", "ppo", "HalfCheetah-v5", 4, 256, 20 * ROLLOUT),
    Row("halfcheetah_sac", "sac", "HalfCheetah-v5", 1, 256, 6_000),
)


@dataclass(frozen=True, slots=True)
class Pace:
    """One run's speed."""

    row: str
    trainer: str
    steps_per_s: float
    """Over the second half of the steps."""

    seconds: float
    cpu_seconds: float
    """Of the whole run, start-up included."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of every run."""

    cores: str
    """As ``taskset -c`` takes them."""

    ours_flags: Sequence[str] = ()
    """Further flags of ``learn``."""

    python: Path | None = None
    """One that has the others."""


def configuration(row: Row) -> dict[str, Any]:
    """Our settings for a row."""
    if row.learner == "ppo":
        values = {"batch_size": MINIBATCH, "buffer_size": ROLLOUT, "num_epoch": EPOCHS}
        every = ROLLOUT
    else:
        values = {
            "batch_size": 256,
            "buffer_size": 100_000,
            "buffer_init_steps": 1000,
            "steps_per_update": 1.0,
        }
        every = 500
    behavior = {
        "trainer_type": row.learner,
        "hyperparameters": values,
        "network_settings": {"hidden_units": row.units, "num_layers": 2},
        "max_steps": row.steps,
        "time_horizon": ROLLOUT // row.copies,
        "summary_freq": every,
    }
    return {"env_settings": {"env_args": ["--agents", str(row.copies)]}, "behaviors": {row.env: behavior}}


def task_of_others(row: Row, seed: int) -> dict[str, Any]:
    """Arguments of the other libraries' driver for a row."""
    if row.learner == "ppo":
        values = {"n_steps": ROLLOUT // row.copies, "batch_size": MINIBATCH, "n_epochs": EPOCHS}
    else:
        values = {"batch_size": 256, "buffer_size": 100_000, "learning_starts": 1000}
    return {
        "learner": row.learner, "env": row.env, "copies": row.copies, "steps": row.steps, "units": row.units,
        "seed": seed, "values": values,
    }  # fmt: skip


def run(row: Row, trainer: str, seed: int, conditions: Conditions, folder: Path) -> Pace:
    """Trains once. folder: empty, of its own. Raises RunFailed."""
    threads = str(len(core_numbers(conditions.cores)))
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    pinned = ["taskset", "-c", conditions.cores]
    if trainer == "ours":
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration(row)), encoding="utf-8")
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(CHECKOUT), *filter(None, [environment.get("PYTHONPATH")])]
        )
        command = [
            *pinned, sys.executable, "-m", "trainer_service", "learn", "config.yaml", f"--env=gym:{row.env}",
            "--run-id=run", "--results-dir=.", f"--seed={seed}", "--torch-device=cpu", *conditions.ours_flags,
        ]  # fmt: skip
        spent = run_timed(command, folder, environment, limit_s=LIMIT_S)
        stamps = our_stamps(folder / "run" / "metrics.jsonl")
    else:
        driver = CHECKOUT / "benchmarks" / "measuring" / "sb3_driver.py"
        task = json.dumps(task_of_others(row, seed))
        environment.pop("PYTHONPATH", None)
        environment["PYTHONSAFEPATH"] = "1"  # beside the driver lie files of ours
        command = [*pinned, str(conditions.python), str(driver), trainer, task]
        spent = run_timed(command, folder, environment, limit_s=LIMIT_S)
        stamps = last_json((folder / "log.txt").read_text(encoding="utf-8"))["stamps"]
    return Pace(row.name, trainer, second_half_rate(stamps), spent.seconds, spent.cpu_seconds)


def our_stamps(metrics: Path) -> list[tuple[int, float]]:
    """Steps and seconds of our summaries."""
    said = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return [(each["step"], each["wall_s"]) for each in said]


def second_half_rate(stamps: Sequence[Sequence[float]]) -> float:
    """Steps per second between the first stamp in the second half of the steps and the last. Raises RunFailed."""
    steps, seconds = stamps[-1]
    begun = next((stamp for stamp in stamps if stamp[0] >= steps / 2), stamps[-1])
    if begun[1] >= seconds:
        raise RunFailed(f"too few stamps for a speed: {list(stamps)}")
    return (steps - begun[0]) / (seconds - begun[1])


@contextmanager
def busy_cores(count: int, cores: str) -> Iterator[None]:
    """A context in which so many other processes compute on the same cores without end."""
    command = ["taskset", "-c", cores, sys.executable, "-c", _BUSY]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def core_numbers(cores: str) -> list[int]:
    """The numbers in a list as ``taskset -c`` takes it: ``0,2-3``. Raises ValueError where it is none."""
    found: list[int] = []
    for part in cores.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def medians(paces: Sequence[Pace]) -> dict[str, dict[str, float]]:
    """The median steps per second of each trainer, by row."""
    names = dict.fromkeys(pace.row for pace in paces)
    return {
        name: {
            trainer: median(each)
            for trainer in TRAINERS
            if (each := [pace.steps_per_s for pace in paces if (pace.row, pace.trainer) == (name, trainer)])
        }
        for name in names
    }


def pace_of(said: Mapping[str, Any]) -> Pace:
    """A speed as a file has it."""
    return Pace(**said)


def table(paces: Sequence[Pace]) -> str:
    """Medians with the lowest and the highest, and ours divided by theirs; a line for each row."""
    titles = {row.name: row.title for row in ROWS}
    lines = [("steps/s", "ours", *(cell for name in OTHERS.values() for cell in (name, "ratio")))]
    for name, middle in medians(paces).items():
        cells = [titles[name]]
        for trainer in TRAINERS:
            rates = [pace.steps_per_s for pace in paces if (pace.row, pace.trainer) == (name, trainer)]
            cells.append(f"{middle[trainer]:,.0f} ({min(rates):,.0f}-{max(rates):,.0f})" if rates else "-")
            if trainer in OTHERS:
                faster = times_faster(middle.get("ours"), middle.get(trainer))
                cells.append("-" if faster is None else f"{faster:.2f}")
        lines.append(tuple(cells))
    return "\n".join(aligned(lines))
