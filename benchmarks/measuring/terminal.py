"""Parts that the scripts share on a terminal: progress, how busy the machine is, and numbers that users give."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def say(text: str) -> None:
    """Progress goes to standard error, results to standard output."""
    print(text, file=sys.stderr, flush=True)


def load() -> str:
    """How many processes want to run, over the last minute; where the system tells."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def at_least_one(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return number


def score_parser(description: str, names: Sequence[str], folder: str) -> argparse.ArgumentParser:
    """The flags of a script that scores runs of several seeds.

    names: what ``--only`` chooses from; folder: of its runs, below results.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these alone")
    parser.add_argument(
        "--seeds", nargs="+", type=at_least_one, default=[1, 2, 3], metavar="N", help="default 1 2 3"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument("--report", action="store_true", help="run nothing: write the page of what is there")
    parser.add_argument(
        "--results-dir", type=Path, default=Path(__file__).parents[2] / "results" / folder, metavar="DIR",
        help=f"where runs are (default results/{folder})",
    )  # fmt: skip
    return parser
