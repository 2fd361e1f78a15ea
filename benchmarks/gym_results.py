"""Trains on Gymnasium's environments with several seeds, scores the last checkpoints, and writes down what came out.

    python benchmarks/gym_results.py [--only NAME ...] [--seeds N ...] [--jobs N] [--sb3 PYTHON] [--report]

Runs are those of the commands that the page shows, in a folder of their own; finished ones are not repeated. What
came out replaces that row and seed among the scores in benchmarks/gym_scores/scores.jsonl, and the page of all of them
is docs/results/gym.md, with curves beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gym_scores.page import write_page
from gym_scores.rows import ROWS, GymRow
from measuring.scored_runs import CHECKOUT, keep_scores, output_of, parser_of, run, run_missing
from measuring.scores import as_line, score_of

from trainer_service.config import load_run_options

KEPT = CHECKOUT / "benchmarks" / "gym_scores" / "scores.jsonl"
PEER = CHECKOUT / "benchmarks" / "gym_scores" / "peer.py"
PEERS = ("ppo", "sac")
"""Learners of Stable-Baselines3."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every command came to its end."""
    row_of = {row.name: row for row in ROWS}
    parser = parser_of("Scores on Gymnasium's environments.", [*row_of], "gym")
    parser.add_argument(
        "--sb3", type=Path, metavar="PYTHON", help="one that has Stable-Baselines3: its runs, too"
    )
    arguments = parser.parse_args(argv)
    folder = arguments.results_dir
    chosen = [(row_of[name], seed) for seed in arguments.seeds for name in arguments.only]
    runs = [partial(run, row, seed, folder) for row, seed in chosen]
    if arguments.sb3 is not None:
        known = [(row, seed) for row, seed in chosen if row.learner in PEERS]
        runs += [partial(run_peer, row, seed, folder, arguments.sb3) for row, seed in known]
    failed = run_missing(arguments, runs)
    write_page(keep_scores(KEPT, folder))
    return 1 if failed else 0


def run_peer(row: GymRow, seed: int, folder: Path, python: Path) -> str:
    """Trains and scores Stable-Baselines3 for as many steps of a row's environment. Returns a line that tells of it."""
    run_id = f"{row.peer}-{seed}"
    kept = folder / f"{run_id}.json"
    if kept.exists():
        return f"{run_id}: there already"
    (settings,) = load_run_options(CHECKOUT / row.config).options.behaviors.values()
    asked = [row.learner, row.task, str(seed), str(settings.max_steps)]
    said = json.loads(output_of([str(python), str(PEER), *asked], run_id).splitlines()[-1])
    score = score_of(json.dumps({"row": row.peer, "seed": seed, **said}))
    kept.write_text(as_line(score), encoding="utf-8")
    return f"{run_id}: {score.value:.2f} after {score.agent_steps} agent steps, {score.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
