"""Trains on simple_spread with this trainer and with XuanCe for the same time, and scores both greedily on mpe2.

    python benchmarks/versus_xuance.py [--only mappo vdn] [--minutes 10] [--seeds 1 2] [--xuance DIR] [--json FILE]

One run after the other, each trainer with the settings that it publishes for this task. What is printed is explained
in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from measuring.contest import ALGORITHMS, Outcome, run_ours, run_xuance, table
from measuring.peer import PeerError
from measuring.terminal import at_least_one, load, say
from measuring.timed import RunFailed
from measuring.xuance_peer import describe, prepare

Contestant = Callable[[str, int, Path], Outcome]
"""Trains an algorithm with a seed, in an empty folder of its own, and scores it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say.

    Returns:
        0, also where XuanCe cannot be had, if every run came to its end; otherwise 1.
    """
    arguments = parse(argv)
    # Started in the background, a shell lets us ignore SIGINT, and the trainer would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    contestants = {"ours": _ours(arguments), "XuanCe": _xuance(arguments)}
    print(_conditions(arguments), flush=True)
    outcomes: list[Outcome] = []
    failed = False
    for algorithm in arguments.only:
        for turn, seed in enumerate(arguments.seeds):
            # Who begins alternates, since a machine may slow down as it warms up.
            for name in list(contestants) if turn % 2 == 0 else reversed(contestants):
                contestant = contestants[name]
                if contestant is None:
                    continue
                outcome = _run(name, contestant, algorithm, seed)
                failed |= outcome is None
                outcomes += [] if outcome is None else [outcome]
    print(f"\n{table(outcomes)}", flush=True)
    if arguments.json:
        document = [asdict(outcome) for outcome in outcomes]
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(
        description="Ours and XuanCe on simple_spread for the same time, scored greedily on mpe2."
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*ALGORITHMS],
        default=[*ALGORITHMS],
        help="these alone (default: all)",
    )
    parser.add_argument(
        "--minutes", type=_positive, default=10.0, metavar="M", help="of training, each (default 10)"
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[1], metavar="S", help="one run each (default 1)"
    )
    parser.add_argument(
        "--episodes",
        type=at_least_one,
        default=1000,
        metavar="N",
        help="that a score is the mean of (default 1000)",
    )
    parser.add_argument(
        "--ours-on", choices=["sim", "pettingzoo"], default="sim",
        help="ours trains in sim:spread (default), or on mpe2 itself",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=_whole, default=1, metavar="N",
        help="of torch, in every process (default 1; 0 leaves it to torch)",
    )  # fmt: skip
    parser.add_argument(
        "--xuance", type=Path, metavar="DIR",
        help="a virtual environment with xuance 1.4.4 and mpe2 (default: made in benchmarks/.xuance once)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    return parser.parse_args(argv)


def _ours(arguments: argparse.Namespace) -> Contestant:
    return lambda algorithm, seed, scratch: run_ours(
        algorithm,
        seed,
        60 * arguments.minutes,
        arguments.episodes,
        arguments.ours_on,
        arguments.threads,
        scratch,
    )


def _xuance(arguments: argparse.Namespace) -> Contestant | None:
    """XuanCe, or None and a line that says why not."""
    try:
        environment = arguments.xuance or prepare(say=say)
        print(f"XuanCe: {describe(environment)}", flush=True)
    except PeerError as error:
        print(f"XuanCe is skipped: {error}", flush=True)
        return None
    python = environment.absolute() / "bin" / "python"
    return lambda algorithm, seed, scratch: run_xuance(
        python, algorithm, seed, 60 * arguments.minutes, arguments.episodes, arguments.threads, scratch
    )


def _conditions(arguments: argparse.Namespace) -> str:
    """Conditions of every run."""
    mine = ", ".join(f"{name} {version(name)}" for name in ("mpe2", "torch", "numpy"))
    threads = f"{arguments.threads} thread(s)" if arguments.threads else "as many threads as torch takes"
    trained = "sim:spread" if arguments.ours_on == "sim" else "mpe2"
    return (
        f"ours: {mine}, Python {platform.python_version()}, trained on {trained}\n"
        f"{platform.platform()}, {os.cpu_count()} cores, {threads} a process; "
        f"{arguments.minutes:g} minutes each; greedy on mpe2, {arguments.episodes} episodes"
    )


def _run(name: str, contestant: Contestant, algorithm: str, seed: int) -> Outcome | None:
    """None, and a line that says why, if it failed. Nothing of a run stays on disk."""
    title = f"{algorithm}, seed {seed}, {name}"
    say(f"{title} ... (load {load()})")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        try:
            outcome = contestant(algorithm, seed, Path(scratch))
        except RunFailed as error:
            print(f"{title}: FAILED, {error}", flush=True)
            return None
    spent = f"{outcome.seconds:.0f} s ({outcome.cpu_seconds:.0f} s of CPU)"
    say(f"  {outcome.agent_steps:,} agent steps in {spent}, P {outcome.mean:.2f}")
    return outcome


def _positive(text: str) -> float:
    number = float(text)
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected more than 0, got {text}")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, got {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
