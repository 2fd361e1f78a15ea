"""Runs the learning tests of ML-Agents' developers with our trainer, and writes down what was reached.

    python benchmarks/learning_results.py [--only PATTERN] [--seeds N] [--jobs N] [--resume | --report] [--json]

Without ``--only`` the result is the page docs/results/learning.md; with it, a table on the terminal.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import importlib.metadata
import json
import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from learning.cases import Case, cases
from learning.results import Result, ResultFile
from learning.running import run_case
from learning.table import page, plain
from measuring.terminal import at_least_one

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "results" / "learning.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say.

    Returns:
        0 if every run came to its end, whether it passed or not; otherwise 1.
    """
    arguments = parse(argv)
    # Started in the background, a shell lets us ignore SIGINT, and the workers would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [case for case in cases() if fits(case.name, arguments.only)]
    if not chosen:
        print(f"no test is called {arguments.only!r}", file=sys.stderr)
        return 2
    seeds = range(1, arguments.seeds + 1)
    file = ResultFile(arguments.results, resume=arguments.resume or arguments.report)
    # Every test once before any is run again: whoever interrupts this has seen more of it.
    wanted = [(case, seed) for seed in seeds for case in chosen]
    done = {(result.case, result.seed): result for result in file.read()}
    left = [(case, seed) for case, seed in wanted if (case.name, seed) not in done and not arguments.report]
    for number, result in enumerate(_run_all(left, arguments.jobs), len(wanted) - len(left) + 1):
        file.add(result)
        done[result.case, result.seed] = result
        print(f"{number:>4}/{len(wanted)}  {_said(result)}", file=sys.stderr, flush=True)
    results = [done[case.name, seed] for case, seed in wanted if (case.name, seed) in done]
    _publish(arguments, chosen, results, seeds)
    return 1 if any(result.failure for result in results) else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(description="ML-Agents' learning tests with our trainer.")
    parser.add_argument("--only", metavar="PATTERN", help="tests whose name holds this, such as 'visual*sac'")
    parser.add_argument("--seeds", type=at_least_one, default=3, metavar="N", help="1 to N (default 3)")
    parser.add_argument("--jobs", type=at_least_one, default=2, metavar="N", help="runs at once (default 2)")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--report", action="store_true", help="run nothing: tell the results that are there")
    parser.add_argument("--json", action="store_true", help="print every result as JSON instead of a table")
    parser.add_argument(
        "--results", type=Path, default=CHECKOUT / "results" / "learning-tests.jsonl", metavar="FILE",
        help="where results are kept, a line each (default results/learning-tests.jsonl)",
    )  # fmt: skip
    return parser.parse_args(argv)


def fits(name: str, pattern: str | None) -> bool:
    """Whether a test is meant: ``sac``, ``visual*2 pictures``; brackets stand for themselves."""
    return pattern is None or fnmatch.fnmatchcase(name, f"*{pattern.replace('[', '[[]')}*")


def _run_all(runs: Sequence[tuple[Case, int]], jobs: int) -> Iterator[Result]:
    """Results as they come. Each job is a process, which imports torch once and has a main thread for signals.

    Jobs have one thread each: two jobs with two threads each would mostly wait for each other.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures: list[Future[Result]] = [pool.submit(run_case, case, seed) for case, seed in runs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _publish(
    arguments: argparse.Namespace, chosen: Sequence[Case], results: Sequence[Result], seeds: Sequence[int]
) -> None:
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    if arguments.only is not None:
        if not arguments.json:
            print(plain(chosen, results))
        return
    document = page(
        chosen,
        results,
        seeds=seeds,
        versions=_versions(),
        date=datetime.date.today().isoformat(),
    )
    PAGE.write_text(document, encoding="utf-8")
    print(f"written: {PAGE.relative_to(CHECKOUT)}", file=sys.stderr)


def _versions() -> dict[str, str]:
    names = ("torch", "numpy", "grpcio")
    return {
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in names},
    }


def _said(result: Result) -> str:
    verdict = "FAILED" if result.failure else "passed" if result.passed else "MISSED"
    mean = "-" if result.final is None else f"{result.final:.2f}"
    reason = f": {result.failure}" if result.failure else ""
    return f"{verdict}  {mean:>5}  {result.seconds:5.1f} s  {result.case}, seed {result.seed}{reason}"


if __name__ == "__main__":
    sys.exit(main())
