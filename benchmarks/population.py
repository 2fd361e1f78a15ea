"""Compares a population with the best of as many fixed draws from the same space, at equal total steps.

    python benchmarks/population.py --tasks basic 3dball cartpole --repetitions 3 --jobs 2 --to population.json

Both begin with the same draws. A fixed draw keeps its values to the end. The policy of the best member is scored over
episodes of its own, so the selection of the best does not count in its favor.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import trainer_service
from trainer_service.config.reading.bundled import bundled_configs
from trainer_service.config.reading.document import read_document
from trainer_service.config.reading.merge import merged
from trainer_service.experiments.population import BEST, Plan, Population
from trainer_service.training.stop_signals import StopSignals

EPISODES = 100
MEMBERS = 8


@dataclass(frozen=True)
class Task:
    """A task, and how long each member trains on it."""

    env: str
    max_steps: int
    interval: int
    summary_freq: int
    batch_sizes: tuple[int, ...]


TASKS = {
    "basic": Task("sim:basic", 2000, 500, 250, (16, 32, 64, 128)),
    "3dball": Task("sim:3dball", 48_000, 12_000, 3000, (64, 128, 256, 512)),
    "cartpole": Task("gym:CartPole-v1", 24_000, 6000, 1500, (64, 128, 256, 512)),
    "hybrid": Task("sim:hybrid", 48_000, 8000, 2000, (64, 128, 256, 512)),
    "lunarlander": Task("gym:LunarLander-v3", 160_000, 20_000, 5000, (64, 128, 256, 512)),
    "hopper": Task("gym:Hopper-v5", 160_000, 20_000, 5000, (64, 128, 256, 512)),
}


@dataclass(frozen=True)
class Result:
    """One comparison: mean returns of the best policy of each side."""

    task: str
    seed: int
    population: float
    fixed: float


def main(argv: list[str] | None = None) -> int:
    """Runs the comparisons and prints a table. Returns 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--to", type=Path, metavar="FILE", help="where results go, as JSON")
    given = parser.parse_args(argv)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, StopSignals() as stop:
        for seed in range(1, given.repetitions + 1):
            for task in given.tasks:
                scores = {
                    kind: trained(Path(folder, f"{task}-{seed}-{kind}"), task, seed, given.jobs, stop)
                    for kind in ("population", "fixed")
                }
                results.append(Result(task, 100 * seed, **scores))
                print(results[-1], flush=True)
                if given.to is not None:
                    given.to.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")
    print(table(results))
    return 0


def trained(folder: Path, task: str, seed: int, jobs: int, stop: StopSignals) -> float:
    """Trains a population, or members with fixed values, and returns the mean return of the best policy."""
    of = TASKS[task]
    configuration = settings_of(task)
    plan = Plan(
        members=MEMBERS,
        # One generation to the end of the budget is members that keep their values.
        interval=of.interval if folder.name.endswith("population") else of.max_steps,
        seed=100 * seed,
        objective=None,
        games=20,
        configuration=configuration,
        space=space_of(next(iter(configuration["behaviors"])), of),
    )
    if not Population(folder, plan).train(jobs, stop):
        raise SystemExit("interrupted")
    scores = trainer_service.evaluate(folder / BEST, episodes=EPISODES)
    return fmean(score.mean_return for score in scores.values())


def settings_of(task: str) -> dict[str, Any]:
    """The bundled configuration of a task, with its budget."""
    of = TASKS[task]
    values = read_document(bundled_configs()[task].path).values
    (name,) = values["behaviors"]
    changes = {
        "behaviors": {
            name: {
                "max_steps": of.max_steps,
                "summary_freq": of.summary_freq,
                "checkpoint_interval": of.max_steps,
                "hyperparameters": {"buffer_size": min(of.interval // 4, 2048)},
            }
        },
        "env_settings": {"env_path": of.env},
    }
    changed: dict[str, Any] = merged(values, changes)
    return changed


def space_of(behavior: str, task: Task) -> dict[str, Any]:
    """A wide space of PPO's settings."""
    hyperparameters, rewards = (
        f"behaviors.{behavior}.{section}" for section in ("hyperparameters", "reward_signals")
    )
    return {
        f"{hyperparameters}.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
        f"{hyperparameters}.batch_size": {"choices": list(task.batch_sizes)},
        f"{hyperparameters}.beta": {"low": 1e-5, "high": 1e-1, "log": True},
        f"{hyperparameters}.epsilon": {"low": 0.05, "high": 0.4},
        f"{hyperparameters}.lambd": {"low": 0.8, "high": 1.0},
        f"{hyperparameters}.num_epoch": {"low": 1, "high": 10, "int": True},
        f"{rewards}.extrinsic.gamma": {"choices": [0.8, 0.9, 0.95, 0.99, 0.995]},
    }


def table(results: list[Result]) -> str:
    """A Markdown table of the scores, a row for each task."""
    lines = ["| task | population | best of fixed draws |", "| --- | --- | --- |"]
    for task in dict.fromkeys(result.task for result in results):
        own = [result for result in results if result.task == task]
        cells = (
            f"{fmean(scores):.2f} ({', '.join(f'{score:.2f}' for score in scores)})"
            for scores in ([each.population for each in own], [each.fixed for each in own])
        )
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
