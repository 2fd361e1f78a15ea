"""Trains the same scenes with this trainer and with the real mlagents-learn, and prints how much faster we are.

    python benchmarks/versus_mlagents.py [--scene 3dball basic] [--agents 12 96] [--seeds 1 2 3] [--json FILE]

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
from measuring.report import as_json, comparison, split_table
from measuring.runs import Run, run
from measuring.scenes import DEFAULT_SCENES, SCENES, Case, cases
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
    document = []
    failed = False
    for case in cases(arguments.scene, arguments.agents, arguments.steps):
        our_runs, peer_runs = _race(case, ours, peer, arguments.seeds)
        alone = _exchange(case)
        print(f"\n{comparison(case, our_runs, peer_runs)}\n\n{split_table(our_runs, alone)}\n", flush=True)
        document.append({**as_json(case, our_runs, peer_runs), "simulator_us": alone.simulator_us})
        failed |= any(each.failure is not None for each in our_runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(
        description="Ours and the real mlagents-learn side by side: same simulator, same settings."
    )
    parser.add_argument(
        "--scene", nargs="+", choices=[*SCENES, "all"], default=list(DEFAULT_SCENES),
        help="what to train (default: 3dball with 12 and 96 agents, and basic with 1)",
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
