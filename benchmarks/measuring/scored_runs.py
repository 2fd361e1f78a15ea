"""What the scripts of scores share: runs of several seeds that are trained and scored once, and kept."""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from marl.rows import Row

from measuring.scores import Score, as_line, curve_of, merged, read_lines, score_of, write_lines
from measuring.terminal import at_least_one, say
from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.status.run_status import Ending, run_status

CHECKOUT = Path(__file__).resolve().parents[2]


class RunFailed(Exception):
    """A command that did not come to its end. The text is its last lines."""


def parser_of(description: str, names: Sequence[str], folder: str) -> argparse.ArgumentParser:
    """The flags of a script. names: what ``--only`` chooses from; folder: of its runs, below results."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these alone")
    parser.add_argument(
        "--seeds", nargs="+", type=at_least_one, default=[1, 2, 3], metavar="N", help="default 1 2 3"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument("--report", action="store_true", help="run nothing: write the page of what is there")
    parser.add_argument(
        "--results-dir", type=Path, default=CHECKOUT / "results" / folder, metavar="DIR",
        help=f"where runs are (default results/{folder})",
    )  # fmt: skip
    return parser


def run_missing(arguments: argparse.Namespace, *stages: Sequence[Callable[[], str]]) -> int:
    """Runs the stages one after the other, unless only a page is wanted. Returns how many runs failed."""
    if importlib.util.find_spec("matplotlib") is None:  # better now than after hours of training
        sys.exit('curves are drawn with matplotlib, which is not installed: pip install -e ".[plot]"')
    arguments.results_dir.mkdir(parents=True, exist_ok=True)
    return 0 if arguments.report else sum(run_all(stage, arguments.jobs) for stage in stages)


def keep_scores(kept: Path, folder: Path) -> list[Score]:
    """Adds the scores of the runs in a folder to those that are kept. Returns all of them."""
    known = merged(read_lines(kept, score_of), scores(folder))
    write_lines(kept, known)
    return known


def run_all(wanted: Iterable[Callable[[], str]], jobs: int) -> int:
    """Calls all of them, so many at once, and shows the line that each returns. Returns how many of them failed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(each) for each in wanted]
        for future in concurrent.futures.as_completed(futures):
            try:
                say(future.result())
            except RunFailed as error:
                failed += 1
                say(str(error))
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
        name, *rest = learn
        call([name, "--force", *rest], folder)  # the last arguments may be the simulator's
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
    name, *rest = arguments
    command = [sys.executable, "-m", "trainer_service", name, f"--results-dir={folder.resolve()}", *rest]
    return output_of(command, " ".join(arguments))


def output_of(command: Sequence[str], name: str) -> str:
    """Runs a program with one thread in the checkout. Returns what it printed. Raises RunFailed with its last lines."""
    # Small products are no faster with two threads, and two runs at once share the machine fairly.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise RunFailed(f"{name} ended with {done.returncode}:\n{last}")
    return done.stdout
