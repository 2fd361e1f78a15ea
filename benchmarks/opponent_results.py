"""Trains the sides of MPE's games with several learners and seeds, and lets all of them play each other.

    python benchmarks/opponent_results.py [--only TASK ...] [--seeds N ...] [--jobs N] [--report] [--results-dir DIR]

Last checkpoints of one seed play each other, themselves and chance, on either side and greedily. Finished runs are not
repeated. What came out replaces that task and seed among the games in benchmarks/scores/opponents.jsonl, and the tables
of all of them stand in docs/results/opponents.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from measuring.terminal import score_parser
from scores.opponents import (
    ENCOUNTERS,
    RANDOM,
    TASKS,
    Encounter,
    Task,
    encounter_of,
    encounters_of,
    merged,
    write_page,
)
from scores.record import read_lines, write_lines
from scores.runs import call, run_all, train

EPISODES = 200
"""Of each pair: half of them on either side."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every command came to its end."""
    parser = score_parser(
        "Learners of MPE's games against each other.", [task.name for task in TASKS], "opponents"
    )
    arguments = parser.parse_args(argv)
    folder: Path = arguments.results_dir
    played = [(task, seed) for seed in arguments.seeds for task in TASKS if task.name in arguments.only]
    training = [
        partial(learn, task, learner, seed, folder) for task, seed in played for learner in task.configs
    ]
    playing = [partial(play, task, seed, folder) for task, seed in played]
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0 if arguments.report else sum(run_all(stage, arguments.jobs) for stage in (training, playing))
    new = [each for task, seed in played for each in read_lines(kept(task, seed, folder), encounter_of)]
    known = merged(read_lines(ENCOUNTERS, encounter_of), new)
    write_lines(ENCOUNTERS, known)
    write_page(known)
    return 1 if failed else 0


def learn(task: Task, learner: str, seed: int, folder: Path) -> str:
    """Trains one run to its end, unless it is there. Returns a line that tells of it."""
    run_id = task.run_id(learner, seed)
    seconds, _ = train(task.learn(learner, seed), run_id, folder)
    return f"{run_id}: trained in {seconds:.0f} s"


def play(task: Task, seed: int, folder: Path) -> str:
    """Lets the runs of one seed play each other, unless they did. Returns a line that tells of it."""
    path = kept(task, seed, folder)
    if path.exists():
        return f"{task.name}, seed {seed}: played already"
    found: list[Encounter] = []
    for learner in (*task.configs, RANDOM):
        said = json.loads(call(task.evaluate(learner, seed, EPISODES), folder))
        found += encounters_of(task, learner, seed, said)
    write_lines(path, sorted(found))
    return f"{task.name}, seed {seed}: {len(found)} encounters"


def kept(task: Task, seed: int, folder: Path) -> Path:
    """Where the games of one seed stay."""
    return folder / f"{task.name}-{seed}.games.jsonl"


if __name__ == "__main__":
    sys.exit(main())
