"""The table of scores: trains its rows, writes its page, and checks that a row can be repeated.

    python benchmarks/results.py list                                  # rows, minutes of a run, and kept seeds
    python benchmarks/results.py run hopper_sac lbf_vdn-8x8-2p-3f --seeds 1 2 3
    python benchmarks/results.py run hopper --sb3 ~/venvs/sb3/bin/python    # Stable-Baselines3's, or SBX's, counterpart
    python benchmarks/results.py page                                  # docs/results/scores.md with its curves
    python benchmarks/results.py check 3dball basic                    # trains them again and compares

A finished run is added to benchmarks/scores/scores.jsonl at once, in the place of that row and seed. Runs stay in
``--results-dir``: a queue that was interrupted resumes there, and finished runs are not repeated. ``check`` keeps its
runs apart. It ends with 1 if weights differ on an equal machine, or if a score lies outside the interval elsewhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from measuring.terminal import at_least_one
from scores.check import Verdict, by_interval, by_weights
from scores.curves import of_row
from scores.page import write_page
from scores.record import Score, read_lines, score_of
from scores.rows import ROWS, Row
from scores.runs import CHECKOUT, KEPT, RunFailed, run, run_all, run_peer, scored, trained

ROW_OF = {row.name: row for row in ROWS}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every run came to its end, and every check held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("list", "run", "page", "check"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of `list`; for run, default all")
    parser.add_argument("--seeds", nargs="+", type=at_least_one, metavar="N", help="default 1 2 3; check: 1")
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument(
        "--results-dir",
        type=Path,
        metavar="DIR",
        help="where runs are (default results/scores); for check a folder without them",
    )
    parser.add_argument(
        "--sb3", type=Path, metavar="PYTHON", help="has Stable-Baselines3 and SBX: their runs"
    )
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.rows if name not in ROW_OF]:
        parser.error(f"no row {', '.join(unknown)}; `list` shows all")
    if arguments.command == "check" and not arguments.rows:
        parser.error("check: expected names of rows; `list` shows all")
    if arguments.command == "list":
        return show()
    if arguments.command == "page":
        return page()
    known = read_lines(KEPT, score_of)
    if arguments.command == "check" and (new := [name for name in arguments.rows if not of_row(known, name)]):
        parser.error(f"check: the table has no score of {', '.join(new)}; `run` trains a row")
    if arguments.command == "run" and arguments.results_dir is None:
        arguments.results_dir = CHECKOUT / "results" / "scores"
    try:
        if arguments.results_dir is not None:
            arguments.results_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--results-dir: {error}")
    return check(arguments, known) if arguments.command == "check" else train(arguments)


def show() -> int:
    """Prints a line for each row."""
    known = read_lines(KEPT, score_of)
    for row in ROWS:
        there = of_row(known, row.name)
        minutes = f"{max(score.seconds for score in there) / 60:.1f} min" if there else "not run"
        seeds = " ".join(str(score.seed) for score in there)
        print(f"{row.name:<28} {row.task:<32} {minutes:>10}  seeds: {seeds or '–'}")
    return 0


def page() -> int:
    """Writes the page."""
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit('curves are drawn with matplotlib, which is not installed: pip install -e ".[plot]"')
    write_page(read_lines(KEPT, score_of))
    return 0


def train(arguments: argparse.Namespace) -> int:
    """Trains and scores rows. Returns 0 where every run came to its end."""
    folder = arguments.results_dir
    chosen = [
        (ROW_OF[name], seed) for seed in arguments.seeds or (1, 2, 3) for name in arguments.rows or ROW_OF
    ]
    ours = [partial(run, row, seed, folder, KEPT) for row, seed in chosen]
    theirs = [partial(run_peer, row, seed, folder, arguments.sb3, KEPT) for row, seed in chosen]
    return min(1, run_all(ours if arguments.sb3 is None else theirs, arguments.jobs))


def check(arguments: argparse.Namespace, known: Sequence[Score]) -> int:
    """Trains rows again and prints a line for each seed. Returns 0 where all hold."""
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.results_dir or Path(scratch)
        for name in arguments.rows:
            for seed in arguments.seeds or (1,):
                verdict = verdict_of(ROW_OF[name], seed, folder, known)
                failed += not verdict.holds
                print(f"{name}, seed {seed}: {verdict.text}", flush=True)
    return min(1, failed)


def verdict_of(row: Row, seed: int, folder: Path, known: Sequence[Score]) -> Verdict:
    """Trains a row again; it is played only where weights cannot be compared."""
    try:
        again = trained(row, seed, folder)
        return by_weights(again, known) or by_interval(row, scored(row, again, folder), known)
    except RunFailed as error:
        return Verdict(False, str(error))


if __name__ == "__main__":
    sys.exit(main())
