"""Trains the same scenes with this trainer and with the real mlagents-learn, and prints how much faster we are.

    python benchmarks/versus_mlagents.py [--scene 3dball basic] [--agents 12 96] [--seeds 1 2 3] [--json FILE]
    python benchmarks/versus_mlagents.py --builds 1 8 32

Same simulator, same settings, one run after the other. What is printed is explained in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from measuring.exchange import ExchangeCosts, measure_exchange
from measuring.peer import PeerError, describe, learn_command, prepare
from measuring.report import Race, as_json, builds_table, comparison, split_table
from measuring.runs import Run, run
from measuring.scenes import BUILDS_AT_ONCE, DEFAULT_SCENES, SCENES, SLEEP_MS, Case, cases, sleeping_builds
from measuring.terminal import at_least_one, load, say
from measuring.trainers import Ours, Peer, Trainer
from measuring.training_log import Summary

_EXCHANGES = 500
_EVERY_STEPS = 24_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say.

    Returns:
        0, also without the real trainer, if all of our own runs came to their end; otherwise 1.
    """
    arguments = parse(argv)
    # Started in the background, a shell lets us ignore SIGINT, and the trainers would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ours, peer = Ours(), _peer(arguments.peer)
    say(f"{platform.platform()}, {os.cpu_count()} cores, load {load()}")
    chosen = (
        cases(arguments.scene, arguments.agents, arguments.steps)
        if arguments.builds is None
        else sleeping_builds(arguments.builds or BUILDS_AT_ONCE, arguments.agents, arguments.steps)
    )
    races: list[Race] = []
    document = []
    for case in chosen:
        races.append((case, *_race(case, ours, peer, arguments.seeds)))
        document.append(as_json(*races[-1]))
        if arguments.builds is None:
            document[-1]["simulator_us"] = _show(*races[-1])
    if arguments.builds is not None:
        print(f"\n{builds_table(races)}\n", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if any(run.failure is not None for _, our_runs, _ in races for run in our_runs) else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(
        description="Ours and the real mlagents-learn side by side: same simulator, same settings."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--scene", nargs="+", choices=[*SCENES, "all"], default=list(DEFAULT_SCENES),
        help="what to train (default: 3dball with 12 and 96 agents, and basic with 1)",
    )  # fmt: skip
    what.add_argument(
        "--builds", nargs="*", type=at_least_one, metavar="N",
        help=f"how many builds of {SLEEP_MS} ms per step a core of each trainer serves, with N of them at once "
        f"(default: {' '.join(map(str, BUILDS_AT_ONCE))})",
    )  # fmt: skip
    parser.add_argument(
        "--agents", nargs="+", type=at_least_one, metavar="N", help="instead of the scenes' own"
    )
    parser.add_argument(
        "--steps", type=at_least_one, metavar="N", help="agent steps after which a run is stopped"
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[1], metavar="S", help="one run each (default 1)"
    )
    parser.add_argument(
        "--peer", type=Path, metavar="DIR",
        help="a virtual environment with mlagents 1.1.0 (default: made in benchmarks/.peer once)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    return parser.parse_args(argv)


def _peer(environment: Path | None) -> Peer | None:
    """The real trainer, or None and a line that says why not."""
    try:
        environment = environment or prepare(say=say)
        peer = Peer(learn_command(environment))
    except PeerError as error:
        print(f"mlagents-learn is skipped: {error}", flush=True)
        return None
    print(describe(environment), flush=True)
    return peer


def _show(case: Case, our_runs: Sequence[Run], peer_runs: Sequence[Run]) -> float:
    """Prints the tables of a bundled scene. Returns what its simulator takes alone, in microseconds."""
    alone = _exchange(case)
    print(f"\n{comparison(case, our_runs, peer_runs)}\n\n{split_table(our_runs, alone)}\n", flush=True)
    return alone.simulator_us


def _exchange(case: Case) -> ExchangeCosts:
    env, pictures = f"sim:{case.scene.name}", case.variant.pictures
    if case.copies is None:
        return measure_exchange(env, case.agents, _EXCHANGES, pictures)
    return measure_exchange(env, None, _EXCHANGES, pictures, team={"copies": case.copies})


def _race(
    case: Case, ours: Trainer, peer: Trainer | None, seeds: Sequence[int]
) -> tuple[list[Run], list[Run]]:
    """One run of each for every seed; who begins alternates, since a machine may slow down as it warms up."""
    our_runs: list[Run] = []
    peer_runs: list[Run] = []
    for turn, seed in enumerate(seeds):
        contest = [(ours, our_runs)] if peer is None else [(ours, our_runs), (peer, peer_runs)]
        for trainer, runs in contest if turn % 2 == 0 else reversed(contest):
            runs.append(_run(trainer, case, seed))
    return our_runs, peer_runs


def _run(trainer: Trainer, case: Case, seed: int) -> Run:
    title = f"{case.title}, {case.agents} agents, seed {seed}, {trainer.name}"
    say(f"{title}: up to {case.steps:,} steps ...")
    said_at = 0

    def watch(summary: Summary) -> None:
        nonlocal said_at
        if summary.step - said_at < min(_EVERY_STEPS, case.steps // 4) and summary.step < case.steps:
            return
        said_at = summary.step
        reward = "-" if summary.mean_return is None else f"{summary.mean_return:.2f}"
        say(f"  {summary.seen_s:6.1f} s  {summary.step:>9,} steps  mean return {reward}")

    done = run(trainer, case, seed, watch)
    if done.failure is not None:
        say(f"  FAILED: {done.failure}")
    return done


if __name__ == "__main__":
    sys.exit(main())
