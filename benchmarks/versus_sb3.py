"""Trains on Gymnasium's environments with this trainer, Stable-Baselines3 and SBX, and prints how fast each of them is.

    python benchmarks/versus_sb3.py --python ~/venvs/sb3/bin/python [--only cartpole] [--repetitions 3] [--json FILE]
    python benchmarks/versus_sb3.py --python ~/venvs/sb3/bin/python --busy 1     # beside a program that never rests

One run after the other, all on the same cores, each with the same settings. benchmarks/README.md says how to install
theirs and what is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from measuring.step_rates import ROWS, TRAINERS, Conditions, Pace, Row, busy_cores, core_numbers, run, table
from measuring.terminal import at_least_one, load, say
from measuring.timed import RunFailed


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every run came to its end, otherwise 1."""
    arguments = parse(argv)
    conditions = Conditions(arguments.cores, shlex.split(arguments.ours_flags), arguments.python)
    trainers = there(arguments.python)
    told = (
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}; each run on core "
        f"{arguments.cores}, beside {arguments.busy} busy programs there; load {load()} at the start"
    )
    print(told, flush=True)
    paces: list[Pace] = []
    failed = False
    with busy_cores(arguments.busy, arguments.cores):
        for row in (row for row in ROWS if row.name in arguments.only):
            for repetition in range(arguments.repetitions):
                # Who begins rotates, since a machine may slow down as it warms up.
                first = repetition % len(trainers)
                for trainer in (*trainers[first:], *trainers[:first]):
                    pace = attempt(row, trainer, repetition + 1, conditions)
                    failed |= pace is None
                    paces += [] if pace is None else [pace]
    print(f"\n{table(paces)}\n\nload {load()} at the end", flush=True)
    if arguments.json:
        document = {"conditions": told, "busy": arguments.busy, "paces": [asdict(pace) for pace in paces]}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return int(failed)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(
        description="Ours, Stable-Baselines3 and SBX: the same tasks, the same settings."
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these alone (default: all)")
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="one that has Stable-Baselines3, and perhaps SBX (default: ours alone)",
    )
    parser.add_argument(
        "--repetitions", type=at_least_one, default=3, metavar="N", help="of each run (default 3)"
    )
    parser.add_argument(
        "--cores",
        type=cores,
        default="0",
        metavar="LIST",
        help="for all, as taskset -c takes them (default 0)",
    )
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="programs that never rest on the same cores (default 0)",
    )
    parser.add_argument(
        "--ours-flags",
        default="",
        metavar="FLAGS",
        help="further flags of learn, as one: --ours-flags=--isolate",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    return parser.parse_args(argv)


def there(python: Path | None) -> tuple[str, ...]:
    """Our runs, and those of the other libraries that a Python has."""
    if python is None:
        return TRAINERS[:1]
    question = (
        "import importlib.util as u; print(*(n for n in ('stable_baselines3', 'sbx') if u.find_spec(n)))"
    )
    found = subprocess.run([str(python), "-c", question], capture_output=True, text=True, check=True)
    return ("ours", *found.stdout.split())


def attempt(row: Row, trainer: str, seed: int, conditions: Conditions) -> Pace | None:
    """One run; None, and a line that says why, if it failed. Nothing of it stays on disk."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        try:
            pace = run(row, trainer, seed, conditions, Path(folder))
        except RunFailed as error:
            print(f"{row.title}, {trainer}: FAILED, {error}", flush=True)
            return None
    say(f"{row.title}, {trainer}: {pace.steps_per_s:,.0f} steps/s in {pace.seconds:.0f} s (load {load()})")
    return pace


def cores(text: str) -> str:
    """A list of cores, for argparse."""
    core_numbers(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
