"""Trains the sides of MPE's games with several learners and seeds, and lets all of them play each other.

    python benchmarks/opponent_results.py [--only TASK ...] [--seeds N ...] [--jobs N] [--report] [--results-dir DIR]

Last checkpoints of one seed play each other, themselves and chance, on either side and greedily. Finished runs are not
repeated. What came out replaces that task and seed among the games in benchmarks/marl/opponents.jsonl, and the tables
of all of them stand in docs/results/opponents.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import marl_results
from marl.opponents import (
    RANDOM,
    TASKS,
    Encounter,
    Task,
    encounters_of,
    merged,
    read_encounters,
    write_encounters,
)
from marl.page import require_matplotlib, write_page
from marl.scores import read_scores
from measuring.terminal import at_least_one

EPISODES = 200
"""Of each pair: half of them on either side."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every command came to its end."""
    arguments = parse(argv)
    require_matplotlib()
    folder: Path = arguments.results_dir
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [task for task in TASKS if arguments.only is None or task.name in arguments.only]
    played = [(task, seed) for seed in arguments.seeds for task in chosen]
    failed = 0
    if not arguments.report:
        training = [
            partial(train, task, learner, seed, folder) for task, seed in played for learner in task.configs
        ]
        failed = marl_results.run_all(training, arguments.jobs)
        playing = [partial(play, task, seed, folder) for task, seed in played]
        failed += marl_results.run_all(playing, arguments.jobs)
    new = [each for task, seed in played for each in read_encounters(kept(task, seed, folder))]
    known = merged(read_encounters(marl_results.ENCOUNTERS), new)
    write_encounters(marl_results.ENCOUNTERS, known)
    write_page(marl_results.CHECKOUT, read_scores(marl_results.KEPT), known)
    return 1 if failed else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(description="Learners of MPE's games against each other.")
    parser.add_argument("--only", nargs="+", choices=[task.name for task in TASKS], help="these alone")
    parser.add_argument(
        "--seeds", nargs="+", type=at_least_one, default=[1, 2, 3], metavar="N", help="default 1 2 3"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument("--report", action="store_true", help="run nothing: write the page of what is there")
    parser.add_argument(
        "--results-dir", type=Path, default=marl_results.CHECKOUT / "results" / "opponents", metavar="DIR",
        help="where runs are (default results/opponents)",
    )  # fmt: skip
    return parser.parse_args(argv)


def train(task: Task, learner: str, seed: int, folder: Path) -> str:
    """Trains one run to its end, unless it is there. Returns a line that tells of it."""
    run_id = task.run_id(learner, seed)
    seconds = marl_results.train(task.learn(learner, seed), run_id, folder)
    return f"{run_id}: trained in {seconds:.0f} s"


def play(task: Task, seed: int, folder: Path) -> str:
    """Lets the runs of one seed play each other, unless they did. Returns a line that tells of it."""
    path = kept(task, seed, folder)
    if path.exists():
        return f"{task.name}, seed {seed}: played already"
    found: list[Encounter] = []
    for learner in (*task.configs, RANDOM):
        said = json.loads(marl_results.call(task.evaluate(learner, seed, EPISODES), folder))
        found += encounters_of(task, learner, seed, said)
    write_encounters(path, found)
    return f"{task.name}, seed {seed}: {len(found)} encounters"


def kept(task: Task, seed: int, folder: Path) -> Path:
    """Where the games of one seed stay."""
    return folder / f"{task.name}-{seed}.games.jsonl"


if __name__ == "__main__":
    sys.exit(main())
