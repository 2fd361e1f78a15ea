"""Trains team learners with several seeds, scores their last checkpoints greedily, and writes down what came out.

    python benchmarks/marl_results.py [--only NAME ...] [--seeds N ...] [--jobs N] [--report] [--results-dir DIR]

Runs are those of the commands that the page shows, in a folder of their own; finished ones are not repeated. What
came out replaces that row and seed among the scores in benchmarks/marl/scores.jsonl, and the page of all of them is
docs/results/marl.md, with curves beside it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from marl.opponents import read_encounters
from marl.page import require_matplotlib, write_page
from marl.rows import ROWS, Row
from marl.scores import Score, as_line, curve_of, merged, read_scores, score_of, write_scores
from measuring.terminal import at_least_one

from trainer_service.analysis.run_record import read_run
from trainer_service.analysis.run_status import Ending, run_status

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / "benchmarks" / "marl" / "scores.jsonl"
ENCOUNTERS = CHECKOUT / "benchmarks" / "marl" / "opponents.jsonl"


class RunFailed(Exception):
    """A command that did not come to its end. The text is its last lines."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every command came to its end."""
    arguments = parse(argv)
    require_matplotlib()
    chosen = [row for row in ROWS if arguments.only is None or row.name in arguments.only]
    wanted = [(row, seed) for row in chosen for seed in arguments.seeds]
    arguments.results_dir.mkdir(parents=True, exist_ok=True)
    failed = 0
    if not arguments.report:
        failed = run_all(
            [partial(run, row, seed, arguments.results_dir) for row, seed in wanted], arguments.jobs
        )
    known = merged(read_scores(KEPT), scores(arguments.results_dir))
    write_scores(KEPT, known)
    write_page(CHECKOUT, known, read_encounters(ENCOUNTERS))
    return 1 if failed else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(description="Scores of team learners.")
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ROWS], help="these alone")
    parser.add_argument(
        "--seeds", nargs="+", type=at_least_one, default=[1, 2, 3], metavar="N", help="default 1 2 3"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument("--report", action="store_true", help="run nothing: write the page of what is there")
    parser.add_argument(
        "--results-dir", type=Path, default=CHECKOUT / "results" / "marl", metavar="DIR",
        help="where runs are (default results/marl)",
    )  # fmt: skip
    return parser.parse_args(argv)


def run_all(wanted: Iterable[Callable[[], str]], jobs: int) -> int:
    """Calls all of them, so many at once, and shows the line that each returns. Returns how many of them failed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(each) for each in wanted]
        for future in concurrent.futures.as_completed(futures):
            try:
                print(future.result(), file=sys.stderr, flush=True)
            except RunFailed as error:
                failed += 1
                print(error, file=sys.stderr, flush=True)
    return failed


def run(row: Row, seed: int, folder: Path) -> str:
    """Trains and scores one run, or as much of that as is missing. Returns a line that tells of it."""
    run_id = f"{row.name}-{seed}"
    kept = folder / f"{run_id}.json"
    if kept.exists():
        return f"{run_id}: there already"
    seconds = train(row.learn(run_id, seed), run_id, folder)
    said = json.loads(call(row.evaluate(run_id), folder))
    curve = curve_of(folder / run_id, of_group=row.unit == "team")
    score = Score(row.name, seed, row.score(said), int(said["step"]), seconds, curve)
    kept.write_text(as_line(score), encoding="utf-8")
    return f"{run_id}: {score.value:.2f} after {score.agent_steps} agent steps, {seconds:.0f} s"


def train(learn: Sequence[str], run_id: str, folder: Path) -> float:
    """Calls a command that trains a run, unless that came to its end before. Returns the seconds that it took."""
    trained = folder / f"{run_id}.seconds"
    if not trained.exists():
        began = time.perf_counter()
        call([*learn, "--force"], folder)
        require_end(folder / run_id)
        trained.write_text(f"{time.perf_counter() - began:.1f}\n", encoding="utf-8")
    return float(trained.read_text(encoding="utf-8"))


def require_end(run: Path) -> None:
    """Raises RunFailed where a run did not use up its budget: whoever interrupts one gets exit code 0, too."""
    status = run_status(read_run(run))
    if status.ending is not Ending.FINISHED:
        steps = ", ".join(f"{each.step} of {each.max_steps} steps" for each in status.behaviors.values())
        raise RunFailed(
            f"{run.name}: {status.ending.value} after {steps}, by {status.ended_by or 'nothing known'}"
        )


def scores(folder: Path) -> list[Score]:
    """Those of the runs in this folder."""
    return [score_of(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-*.json"))]


def call(arguments: Sequence[str], folder: Path) -> str:
    """Runs a command of the trainer on the runs in a folder. Returns what it printed. Raises RunFailed."""
    # One thread each: small products are no faster with two, and two runs at once share the machine fairly.
    name, *rest = arguments
    command = [sys.executable, "-m", "trainer_service", name, f"--results-dir={folder.resolve()}", *rest]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise RunFailed(f"{' '.join(arguments)} ended with {done.returncode}:\n{last}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
