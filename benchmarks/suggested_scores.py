"""Compares runs without a configuration with runs of the tuned ones, task by task.

    python benchmarks/suggested_scores.py [--only NAME ...] [--seeds N ...] [--results-dir DIR] [--report]

Each task is a bundled configuration and the environment that it is made for. The score of a run is the mean return of
its last checkpoint (of groups: the group return; of two sides: against random opponents). The ratio is
(score - chance) / (tuned - chance). *chance* is the score of random actions, *tuned* that of the configuration, and
*score* that of ``learn --env X`` without a configuration, with 1.5 times the tuned steps. Without a tuned run
(--kinds) the scene's scripted expert stands in its place. Finished runs are not repeated. The figures go to
suggested_scores.json in the results folder.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from measuring.terminal import say, score_parser
from scores.runs import call, run_all, train

from trainer_service.config import bundled_configs, load_run_options

EPISODES = 200


@dataclass(frozen=True, slots=True)
class Task:
    """A bundled configuration to compare with."""

    config: str

    flags: Sequence[str] = field(default=())
    """Flags of ``learn`` that make the task what the configuration's is."""

    env_args: Sequence[str] = field(default=())
    """Arguments of the environment, likewise."""

    versus: str = ""
    """The opponent that sides are scored against; empty where agents do not compete."""

    factor: float = 1.5
    """Steps of a run without a configuration, in those of the tuned one."""

    @property
    def env(self) -> str:
        return bundled_configs()[self.config].env


TASKS = (
    Task("basic"), Task("3dball"), Task("gridworld"), Task("hallway"), Task("hybrid"), Task("pyramids_curiosity"),
    Task("sorter"), Task("walljump_curriculum"), Task("switch2_mappo"), Task("spread_mappo"), Task("goal_mappo"),
    Task("pushblock_poca"), Task("duel_selfplay", versus="random"), Task("cartpole"), Task("pendulum"),
    Task("lunarlander"), Task("bipedalwalker"), Task("hopper"), Task("halfcheetah"),
    Task("push_mappo", versus="random"), Task("adversary_mappo", versus="random"),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is missing and prints the ratios. Returns 0 where every command came to its end."""
    tasks = {task.config: task for task in TASKS}
    parser = score_parser("Ratios of runs without a configuration.", [*tasks], "suggested")
    parser.set_defaults(seeds=[101, 102])
    parser.add_argument(
        "--kinds", nargs="+", choices=_KINDS, default=["chance", "tuned", "suggested"],
        help="these runs alone (default chance, tuned and suggested)",
    )  # fmt: skip
    parser.add_argument(
        "--factor",
        type=float,
        default=1.5,
        help="steps of new runs without a configuration, in the tuned one's",
    )
    arguments = parser.parse_args(argv)
    folder = arguments.results_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        partial(_measure, replace(tasks[name], factor=arguments.factor), kind, seed, folder)
        for name in arguments.only
        for kind in arguments.kinds
        for seed in (arguments.seeds if kind in ("tuned", "suggested") else [0])
    ]
    failed = 0 if arguments.report else run_all(wanted, arguments.jobs)
    _report([tasks[name] for name in arguments.only], folder)
    return 1 if failed else 0


def _measure(task: Task, kind: str, seed: int, folder: Path) -> str:
    """Trains and scores one run, or as much of that as is missing. Returns a line on it."""
    kept = folder / f"{task.config}-{kind}-{seed}.json"
    if not kept.exists():
        kept.write_text(json.dumps(_KINDS[kind](task, seed, folder)), encoding="utf-8")
    return f"{kept.stem}: {json.loads(kept.read_text(encoding='utf-8'))}"


def _chance(task: Task, _seed: int, folder: Path) -> dict[str, float]:
    line = ["learn", "random", "--run-id", f"{task.config}-random", "--env", task.env, "--seed=1", "--force", "--set",
            "default_settings.max_steps=100", *_last("--env-args", task.env_args)]  # fmt: skip
    call(line, folder)
    return _scores(task, f"{task.config}-random", folder)


def _tuned(task: Task, seed: int, folder: Path) -> dict[str, float]:
    run_id = f"{task.config}-tuned-{seed}"
    config = str(bundled_configs()[task.config].path)
    train(["learn", config, "--run-id", run_id, "--env", task.env, f"--seed={seed}"], run_id, folder)
    return _scores(task, run_id, folder)


def _suggested(task: Task, seed: int, folder: Path) -> dict[str, float]:
    run_id = f"{task.config}-suggested-{seed}"
    line = ["learn", "--run-id", run_id, "--env", task.env, f"--seed={seed}", *_budget(task), *task.flags]
    train([*line, *_last("--env-args", task.env_args)], run_id, folder)
    return _scores(task, run_id, folder)


def _expert(task: Task, seed: int, folder: Path) -> dict[str, float]:
    line = ["play", task.env, "--policy=expert", f"--episodes={EPISODES}", f"--seed={seed}", "--json"]
    found = json.loads(call(line, folder))["behaviors"]
    return {name: _return_of(score) for name, score in found.items()}


_KINDS = {"chance": _chance, "tuned": _tuned, "expert": _expert, "suggested": _suggested}


def _budget(task: Task) -> list[str]:
    """Flags that give a run without a configuration its steps: one budget for all behaviors."""
    options = load_run_options(bundled_configs()[task.config].path).options
    listed = [*options.behaviors.values()] or [options.default_settings]
    most = max(settings.max_steps for settings in listed if settings is not None)
    steps = [f"default_settings.max_steps={round(task.factor * most)}"]
    unequal = {settings.max_steps for settings in options.behaviors.values()} - {most}
    if unequal:
        steps = [
            f"behaviors.{name}.max_steps={round(task.factor * each.max_steps)}"
            for name, each in options.behaviors.items()
        ]
    return [word for each in steps for word in ("--set", each)]


def _scores(task: Task, run_id: str, folder: Path) -> dict[str, float]:
    """Mean returns of a run's last checkpoint, by behavior or side."""
    line = ["evaluate", run_id, f"--episodes={EPISODES}", "--json"]
    if not task.versus:
        found = json.loads(call(line, folder))["behaviors"]
        return {name: _return_of(score) for name, score in found.items()}
    (match,) = json.loads(call([*line, "--against", task.versus], folder))["matches"]
    return {name: _return_of(score) for name, score in match["sides"].items()}


def _return_of(score: Mapping[str, Any]) -> float:
    group = score.get("mean_group_return")
    return float(score["mean_return"] if group is None else group)


def _last(flag: str, words: Sequence[str]) -> list[str]:
    return [flag, *words] if words else []


def _report(tasks: Sequence[Task], folder: Path) -> None:
    """Prints the table of the runs in a folder, and writes it as JSON."""
    rows = []
    for task in tasks:
        found = {kind: _mean_scores(task, kind, folder) for kind in _KINDS}
        found["tuned"] = found["tuned"] or found["expert"]
        if not (found["chance"] and found["tuned"] and found["suggested"]):
            continue
        for seed, score in found["suggested"].items():
            chance, tuned = found["chance"][0], statistics.mean(found["tuned"].values())
            row = {"task": task.config, "seed": seed, "chance": chance, "tuned": tuned, "score": score}
            rows.append({**row, "ratio": (score - chance) / (tuned - chance)})
    for row in rows:
        shown = "  ".join(f"{name} {row[name]:9.2f}" for name in ("chance", "tuned", "score", "ratio"))
        say(f"{row['task']:22} seed {row['seed']}: {shown}")
    (folder / "suggested_scores.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def _mean_scores(task: Task, kind: str, folder: Path) -> dict[int, float]:
    """The mean over behaviors or sides of each seed's scores."""
    paths = sorted(folder.glob(f"{task.config}-{kind}-*.json"))
    return {
        int(path.stem.rpartition("-")[2]): statistics.mean(
            json.loads(path.read_text(encoding="utf-8")).values()
        )
        for path in paths
    }


if __name__ == "__main__":
    sys.exit(main())
