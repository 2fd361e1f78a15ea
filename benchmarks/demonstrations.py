"""Steps to a return with demonstrations, by each way to learn from them, on two bundled scenes with rare rewards.

python benchmarks/demonstrations.py [--only TASK-METHOD ...] [--seeds N ...] [--report]

Recordings are made by the scene's expert (ten episodes), and by random actions (five poor ones); a seed gives the same
bytes, so they are compared with their SHA-256 instead of being kept. A run that is done is not repeated: its
line is in benchmarks/demonstration_runs/runs.jsonl, and ``--report`` prints the table of all lines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer_service.commands.demos.record import Recording
from trainer_service.commands.suggest.probe import random_actions
from unity_bridge.simulators.scene import Scene
from unity_bridge.simulators.scenes.pyramids import Pyramids
from unity_bridge.simulators.scenes.wall_jump import WallJump

FOLDER = Path(__file__).resolve().parent / "demonstration_runs"
RUNS = FOLDER / "runs.jsonl"
_SEED = 900
"""Of scenes and random actions in recordings; runs have other seeds."""


@dataclass(frozen=True)
class Task:
    """A behavior of a bundled scene, with a return that counts as learned."""

    scene: Callable[[], Scene]
    behavior: str
    threshold: float
    steps: int
    """Steps that count: a behavior whose scene has another one may continue after its max_steps."""
    digests: Mapping[str, str]
    """SHA-256 of each recording."""


TASKS = {
    "pyramids": Task(
        Pyramids,
        "Pyramids",
        1.7,
        60_000,
        {
            "expert": "01dc71d0acb3fb4f04a59a9814c163331780cef19dda74414b9d519683262ef4",
            "random": "3148499a4c466f6ba2e0fd855595ee770a82c57d466487776e7cf9813bd28725",
        },
    ),
    "walljump": Task(
        WallJump,
        "BigWallJump",
        0.85,
        40_000,
        {
            "expert": "93931ec4aa18c71026feb6302581f53dd6c586cc939170b3409d5beb3e54f4d9",
            "random": "b6b905e488ad3b7609e0786baef85a02582630ed9a7ad1b04ab8c07c638ac53d",
        },
    ),
}

_GAIL = {"strength": 0.01, "learning_rate": 3e-4, "use_actions": True, "network_settings.hidden_units": 64}
_CLONING = {"steps": 20000, "strength": 0.5, "samples_per_update": 128, "num_epoch": 1}
_CLONED = {"behavioral_cloning.demo_path": "DEMO"} | {
    f"behavioral_cloning.{key}": value for key, value in _CLONING.items()
}
_REPLAYED = {"hyperparameters.replay.demo_path": "DEMO"}
_OFTEN = {"hyperparameters.steps_per_update": 2, "max_steps": 30_000}


@dataclass(frozen=True)
class Method:
    """A way to learn: a configuration of the folder, with further settings. ``DEMO`` stands for the recording."""

    configuration: str
    settings: Mapping[str, Any]
    recording: str = "expert"


METHODS = {
    "sac": Method("sac", {}),
    "sac-cloning": Method("sac", _CLONED),
    "sac-cloning-4": Method("sac", {**_CLONED, **_OFTEN}),
    "ppo-gail": Method(
        "ppo",
        {"reward_signals.gail.demo_path": "DEMO"} | {f"reward_signals.gail.{k}": v for k, v in _GAIL.items()},
    ),
    "sac-demonstrations": Method("sac", _REPLAYED),
    "sac-demonstrations-4": Method("sac", {**_REPLAYED, **_OFTEN}),
    "sac-poor": Method("sac", _REPLAYED, recording="random"),
}
"""Those with a 4 make four times as many gradient steps, in half of the steps at most."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say, and prints the table of all runs."""
    names = [f"{task}-{method}" for task in TASKS for method in METHODS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N")
    parser.add_argument("--report", action="store_true", help="run nothing: print the table")
    arguments = parser.parse_args(argv)
    runs = read_runs()
    done = {(run["task"], run["method"], run["seed"]) for run in runs}
    wanted = [(*name.split("-", 1), seed) for seed in arguments.seeds for name in arguments.only]
    for task, method, seed in wanted:
        if arguments.report or (task, method, seed) in done:
            continue
        runs.append(run(task, method, seed))
        with RUNS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(runs[-1]) + "\n")
    print("\n".join(table(runs)))
    return 0


def read_runs() -> list[dict[str, Any]]:
    """The lines of all runs."""
    return (
        [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()] if RUNS.exists() else []
    )


def record(task: Task, kind: str, path: Path) -> None:
    """Records episodes of the scene's expert, or of random actions. Raises ValueError for other bytes than known."""
    scene, draws = task.scene(), np.random.default_rng(_SEED)
    with Recording(path, episodes=10 if kind == "expert" else 5, behavior=task.behavior) as recording:
        recording.declare(scene.behaviors)
        steps = scene.reset(_SEED)
        while True:
            for name, batch in steps.items():
                if name.partition("?")[0] == task.behavior:
                    recording.observe(0, 0, batch)
            if recording.complete:
                break
            actions = {
                name: scene.expert()[name]
                if kind == "expert"
                else random_actions(steps[name], spec.action_spec, draws)
                for name, spec in scene.behaviors.items()
            }
            for name, batch in steps.items():
                if name.partition("?")[0] == task.behavior:
                    recording.acted(0, 0, batch, actions[name])
            steps = scene.step(actions)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != task.digests[kind]:
        raise ValueError(f"{path.name}: expected SHA-256 {task.digests[kind]}, got {digest}")


def run(name: str, method_name: str, seed: int) -> dict[str, Any]:
    """Trains once. Returns what came out."""
    task, method = TASKS[name], METHODS[method_name]
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / f"{name}_{method.recording}.demo"
        record(task, method.recording, demo)
        prefix = f"behaviors.{task.behavior}"
        given = {key: str(demo) if value == "DEMO" else value for key, value in method.settings.items()}
        command = [
            sys.executable, "-m", "trainer_service", "learn", str(FOLDER / f"{name}_{method.configuration}.yaml"),
            "--env", f"sim:{name}", "--run-id", "run", "--results-dir", folder, "--seed", str(seed),
            *(word for key, value in given.items() for word in ("--set", f"{prefix}.{key}={json.dumps(value)}")),
        ]  # fmt: skip
        before = _cpu_seconds()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=FOLDER.parents[1])
        seconds = _cpu_seconds() - before
        lines = [json.loads(line) for path in Path(folder).rglob("metrics.jsonl") for line in path.open()]
    curve = [
        (line["step"], line["mean_return"])
        for line in lines
        if line.get("behavior") == task.behavior
        and line.get("mean_return") is not None
        and line["step"] <= task.steps
    ]
    return {
        "task": name,
        "method": method_name,
        "seed": seed,
        "reached": next((step for step, value in curve if value >= task.threshold), None),
        "steps": curve[-1][0],
        "last": round(statistics.fmean(value for _, value in curve[-5:]), 3),
        "cpu_s": round(seconds),
        "curve": [[step, round(value, 3)] for step, value in curve],
    }


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a table of all runs: a row for each task and method."""
    rows = ["| task | method | seeds | steps to the threshold | last five summaries | CPU s |"]
    rows.append("| --- | --- | ---: | --- | --- | ---: |")
    for task in TASKS:
        for method in METHODS:
            found = sorted(
                (run for run in runs if (run["task"], run["method"]) == (task, method)),
                key=lambda run: int(run["seed"]),
            )
            if not found:
                rows.append(f"| {task} | {method} | 0 | not run | | |")
                continue
            reached = ", ".join(
                f"{run['reached']:,}" if run["reached"] else f"not in {run['steps']:,}" for run in found
            )
            last = ", ".join(f"{run['last']:.2f}" for run in found)
            seconds = round(statistics.median(run["cpu_s"] for run in found))
            rows.append(f"| {task} | {method} | {len(found)} | {reached} | {last} | {seconds} |")
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
