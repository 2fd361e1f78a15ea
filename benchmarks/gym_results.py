"""Trains on Gymnasium's environments with several seeds, scores the last checkpoints, and writes down what came out.

    python benchmarks/gym_results.py [--only NAME ...] [--seeds N ...] [--jobs N] [--sb3 PYTHON] [--report]

Runs are those of the commands that the page shows, in a folder of their own; finished ones are not repeated. What
came out replaces that row and seed among the scores in benchmarks/gym_scores/scores.jsonl, and the page of all of them
is docs/results/gym.md, with curves beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import marl_results
from gym_scores.page import write_page
from gym_scores.rows import ROWS, GymRow
from marl.page import require_matplotlib
from marl.scores import as_line, merged, read_scores, score_of, write_scores
from marl_results import RunFailed
from measuring.terminal import at_least_one

from trainer_service.config import load_run_options

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / "benchmarks" / "gym_scores" / "scores.jsonl"
PEER = CHECKOUT / "benchmarks" / "gym_scores" / "peer.py"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every command came to its end."""
    arguments = parse(argv)
    require_matplotlib()
    folder: Path = arguments.results_dir
    chosen = [row for row in ROWS if arguments.only is None or row.name in arguments.only]
    wanted: list[Callable[[], str]] = [
        partial(marl_results.run, row, seed, folder) for seed in arguments.seeds for row in chosen
    ]
    if arguments.sb3 is not None:
        wanted += [
            partial(run_peer, row, seed, folder, arguments.sb3) for seed in arguments.seeds for row in chosen
        ]
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0 if arguments.report else marl_results.run_all(wanted, arguments.jobs)
    known = merged(read_scores(KEPT), marl_results.scores(folder))
    write_scores(KEPT, known)
    write_page(CHECKOUT, known)
    return 1 if failed else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(description="Scores on Gymnasium's environments.")
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ROWS], help="these alone")
    parser.add_argument(
        "--seeds", nargs="+", type=at_least_one, default=[1, 2, 3], metavar="N", help="default 1 2 3"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument(
        "--sb3", type=Path, metavar="PYTHON", help="one that has Stable-Baselines3: its runs, too"
    )
    parser.add_argument("--report", action="store_true", help="run nothing: write the page of what is there")
    parser.add_argument(
        "--results-dir", type=Path, default=CHECKOUT / "results" / "gym", metavar="DIR",
        help="where runs are (default results/gym)",
    )  # fmt: skip
    return parser.parse_args(argv)


def run_peer(row: GymRow, seed: int, folder: Path, python: Path) -> str:
    """Trains and scores Stable-Baselines3 for as many steps of a row's environment. Returns a line that tells of it."""
    run_id = f"{row.peer}-{seed}"
    kept = folder / f"{run_id}.json"
    if kept.exists():
        return f"{run_id}: there already"
    (settings,) = load_run_options(CHECKOUT / row.config).options.behaviors.values()
    done = subprocess.run(
        [str(python), str(PEER), row.learner, row.task, str(seed), str(settings.max_steps)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise RunFailed(f"{run_id} ended with {done.returncode}:\n{last}")
    said = json.loads(done.stdout.splitlines()[-1])
    score = score_of(json.dumps({"row": row.peer, "seed": seed, **said}))
    kept.write_text(as_line(score), encoding="utf-8")
    return f"{run_id}: {score.value:.2f} after {score.agent_steps} agent steps, {score.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
