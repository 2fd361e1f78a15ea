"""How speed grows with rollout workers, what a rollout costs on its way, and what that makes of many simulators.

python benchmarks/scaling.py [--quick] [--repeats 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from measuring import learning
from measuring.exchange import measure_exchange
from measuring.report import aligned
from measuring.terminal import at_least_one, load, say
from measuring.timing import median_us
from measuring.wire import measure_bridge
from workers.arithmetic import Costs, Shape, efficiency, learner_for, predict, steps_per_s
from workers.ray_costs import KINDS, RolloutCosts, measure_call, measure_rollout, size_of
from workers.runs import Case, Measured, measure
from workers.sleeper import ACTIONS, AGENTS, BEHAVIOR, Sleeper

from trainer_service.config import DistributedSettings
from trainer_service.distributed.ray_cluster import ray_cluster
from trainer_service.distributed.records import as_arrays
from unity_bridge.steps import ActionBatch

WORKERS = (1, 2, 4)
COLLECTIONS = ("sync", "async")
PICTURES = "pictures, bytes"

SIMULATORS = (8, 64, 1000)
SIMULATORS_PER_WORKER = 8
STEPS_PER_AGENT = 128
"""In a rollout of the prediction: a rollout grows with the number of agents."""

NETWORK_BYTES_PER_S = 1.25e9
"""10 Gbit/s into the learner's machine: an assumption, not measured."""

LARGE_BATCH = 2048
"""Steps of a minibatch in the prediction: it grows with the rollout."""

SHARE = 0.9
"""Of the time that workers are to collect."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(description="How speed grows with rollout workers; nothing is asserted.")
    parser.add_argument("--quick", action="store_true", help="a quarter of the time, without async")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each run, after it has settled (20)")
    parser.add_argument(
        "--repeats", type=at_least_one, default=1, help="of every run; the fastest counts (1)"
    )
    parser.add_argument("--step-ms", type=float, default=5.0, help="that a simulator sleeps (5)")
    parser.add_argument("--no-runs", action="store_true", help="only what parts cost, and predictions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write every figure")
    given = parser.parse_args(argv)
    seconds = given.seconds / 4 if given.quick else given.seconds
    torch.set_num_threads(1)

    say(f"Measuring on {os.cpu_count()} cores, load {load()} ...")
    costs, rollouts = measure_costs(given.step_ms / 1e3, repetitions=3 if given.quick else 9)
    runs: dict[Case, list[Measured]] = {}
    collections = COLLECTIONS[:1] if given.quick else COLLECTIONS
    for _ in range(0 if given.no_runs else given.repeats):
        for case in cases(collections, given.step_ms, seconds):
            measured = measure(case)
            runs.setdefault(case, []).append(measured)
            say(f"  {case.title}: {measured.steps_per_s:,.0f} agent steps/s, load {load()}")

    print(costs_table(costs))
    if runs:
        print(runs_table(costs, rollouts[0].step_bytes, fastest(runs)))
    print(rollouts_table(rollouts))
    for rollout in rollouts:
        if rollout.kind in ("vectors", PICTURES):
            print(prediction_table(costs, rollout))
    if given.json:
        given.json.write_text(json.dumps(as_json(costs, rollouts, runs), indent=2), encoding="utf-8")
    return 0


def cases(collections: Sequence[str], step_ms: float, seconds: float) -> list[Case]:
    """One run without workers, and one for each number of workers in each way to collect."""
    local = Case(workers=0, agents=AGENTS, step_ms=step_ms, seconds=seconds)
    return [
        local,
        *(
            Case(workers=workers, collection=collection, agents=AGENTS, step_ms=step_ms, seconds=seconds)
            for collection in collections
            for workers in WORKERS
        ),
    ]


def measure_costs(step_s: float, repetitions: int) -> tuple[Costs, list[RolloutCosts]]:
    """The cost of each part alone."""
    say("  the simulator, the wire, a forward pass")
    scene = Sleeper(AGENTS, step_s)
    scene.reset(1)
    nothing = {
        BEHAVIOR: ActionBatch(np.zeros((AGENTS, ACTIONS), np.float32), np.zeros((AGENTS, 0), np.int32))
    }
    step_us = median_us(lambda: scene.step(nothing), 20 * repetitions)
    parts = measure_exchange("sim:3dball", AGENTS, 100 * repetitions)
    wire_us = measure_bridge(parts.handshake, parts.message, 100 * repetitions)
    forward_us = learning.our_forward_us(AGENTS, 100 * repetitions)
    say("  an update of 12000 rows")
    update_s = learning.our_update_s(repetitions)
    large_update_s = learning.our_update_s(repetitions, LARGE_BATCH)
    with ray_cluster(DistributedSettings(num_workers=1), 1):
        say("  calls and rollouts through Ray")
        call_s = measure_call()
        rollouts = [
            measure_rollout(kind, 12_000 if kind == "vectors" else 2_000, repetitions) for kind in KINDS
        ]
    pictures = next(each for each in rollouts if each.kind == PICTURES)
    return Costs(
        step_s=step_us * 1e-6,
        exchange_s=(wire_us + forward_us) * 1e-6,
        call_s=call_s,
        put_bytes_per_s=pictures.put_bytes_per_s,
        take_bytes_per_s=pictures.take_bytes_per_s,
        policy_bytes=size_of(as_arrays(learning.our_acting_state())),
        samples_per_s=learning.EPOCHS * learning.BUFFER_SIZE / update_s,
        large_samples_per_s=learning.EPOCHS * learning.BUFFER_SIZE / large_update_s,
    ), rollouts


def fastest(runs: Mapping[Case, Sequence[Measured]]) -> dict[Case, Measured]:
    """The fastest of each case's runs: whatever else a machine does makes them slower only."""
    return {case: max(measured, key=lambda each: each.steps_per_s) for case, measured in runs.items()}


def costs_table(costs: Costs) -> str:
    """Measurements of the parts."""
    rows = [
        ("measured alone", ""),
        ("a simulator's step, ms", f"{costs.step_s * 1e3:.2f}"),
        ("the trainer's time for it: wire, codec, forward pass, ms", f"{costs.exchange_s * 1e3:.2f}"),
        ("a Ray call, ms", f"{costs.call_s * 1e3:.2f}"),
        ("a worker's put of its rollout, GB/s", f"{costs.put_bytes_per_s / 1e9:.1f}"),
        ("the learner's get and copy of it, GB/s", f"{costs.take_bytes_per_s / 1e9:.1f}"),
        ("a policy, kB", f"{costs.policy_bytes / 1e3:,.0f}"),
        (f"the learner, samples/s, minibatches of {learning.BATCH_SIZE}", f"{costs.samples_per_s:,.0f}"),
        (f"the learner, samples/s, minibatches of {LARGE_BATCH:,}", f"{costs.large_samples_per_s:,.0f}"),
    ]
    return _table(rows)


def runs_table(costs: Costs, step_bytes: float, runs: Mapping[Case, Measured]) -> str:
    """Every case beside its prediction. Efficiency is that of one worker's, collected in the same way."""
    ones = {case.collection: measured.steps_per_s for case, measured in runs.items() if case.workers == 1}
    rows: list[tuple[str, ...]] = [
        (
            "one simulator each, 12 agents",
            "agent steps/s",
            "predicted",
            "efficiency",
            "predicted",
            "update, ms",
        )
    ]
    for case, measured in runs.items():
        predicted = _predicted_rate(costs, case, step_bytes)
        of_one = _predicted_rate(costs, case, step_bytes, workers=1)
        shares = ["", ""]
        if case.workers and case.collection in ones:
            share = efficiency(measured.steps_per_s, case.workers, ones[case.collection])
            shares = [f"{share:.2f}", f"{efficiency(predicted, case.workers, of_one):.2f}"]
        rate = f"{measured.steps_per_s:,.0f}"
        rows.append((case.title, rate, f"{predicted:,.0f}", *shares, f"{measured.update_s * 1e3:,.0f}"))
    return _table(rows)


def _predicted_rate(costs: Costs, case: Case, step_bytes: float, workers: int | None = None) -> float:
    shape = Shape(
        workers=case.workers if workers is None else workers,
        simulators=case.simulators,
        agents=case.agents,
        steps=learning.BUFFER_SIZE,
        step_bytes=step_bytes,
    )
    return steps_per_s(costs, shape, case.collection)


def rollouts_table(rollouts: Sequence[RolloutCosts]) -> str:
    """Bytes and milliseconds of a rollout through Ray's object store."""
    rows = [("a rollout of", "steps", "bytes/step", "MB", "serialize", "put", "get", "copy, ms")]
    rows += [
        (
            each.kind,
            f"{each.steps:,}",
            f"{each.step_bytes:,.0f}",
            f"{each.bytes / 1e6:,.1f}",
            *(f"{s * 1e3:,.1f}" for s in (each.serialize_s, each.put_s, each.get_s, each.copy_s)),
        )
        for each in rollouts
    ]
    return _table(rows)


def prediction_table(costs: Costs, rollout: RolloutCosts) -> str:
    """Many simulators, by arithmetic: what each way to collect reaches, and what learner would let the workers collect
    for ``SHARE`` of the time. The learner is the measured one for vectors, with large minibatches, and takes no time
    for pictures.
    """
    has_learner = rollout.kind == "vectors"
    head = f"{rollout.kind}, {SIMULATORS_PER_WORKER} simulators a worker"
    rows: list[tuple[str, ...]] = [
        (
            head, "workers", "steps a rollout", "collect s", "move s", "update s",
            "sync", "steps/s", "async", "steps/s", f"{SHARE:g} needs",
        )
    ]  # fmt: skip
    for simulators in SIMULATORS:
        workers = simulators // SIMULATORS_PER_WORKER
        shape = Shape(
            workers=workers,
            simulators=SIMULATORS_PER_WORKER,
            agents=AGENTS,
            steps=simulators * AGENTS * STEPS_PER_AGENT,
            step_bytes=rollout.step_bytes,
            epochs=learning.EPOCHS if has_learner else 0,
            network_bytes_per_s=NETWORK_BYTES_PER_S,
        )
        times = predict(replace(costs, samples_per_s=costs.large_samples_per_s), shape)
        needed = learner_for(times, shape, SHARE) if has_learner else None
        rows.append(
            (
                f"{simulators:,} simulators",
                str(workers),
                f"{shape.steps:,}",
                f"{times.collect:.2f}",
                f"{times.move:.2f}",
                f"{times.update:.2f}" if has_learner else "-",
                f"{times.collect / times.sync:.2f}",
                f"{shape.steps / times.sync:,.0f}",
                f"{times.collect / times.overlapped:.2f}",
                f"{shape.steps / times.overlapped:,.0f}",
                f"{needed / 1e6:,.1f} M/s" if needed else "-",
            )
        )
    return _table(rows)


def as_json(
    costs: Costs, rollouts: Sequence[RolloutCosts], runs: Mapping[Case, Sequence[Measured]]
) -> dict[str, object]:
    """Every figure, for programs."""
    return {
        "costs": asdict(costs),
        "rollouts": [asdict(each) for each in rollouts],
        "runs": [
            {"case": asdict(case), "measured": [asdict(each) for each in measured]}
            for case, measured in runs.items()
        ],
    }


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(["", *aligned(rows)])


if __name__ == "__main__":
    sys.exit(main())
