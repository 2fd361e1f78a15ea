"""Bounds of the trainer's speed on this machine: each part of the loop alone, and the speed if there were nothing else.

python benchmarks/ceilings.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from measuring import learning
from measuring.exchange import measure_exchange
from measuring.report import aligned
from measuring.runs import run
from measuring.scenes import SCENES, Case
from measuring.terminal import load, say
from measuring.tick import TickCosts, measure_tick
from measuring.trainers import Ours
from measuring.training_log import cpu_us_per_exchange
from measuring.wire import measure_bridge, measure_ping_pong

AGENTS = (12, 96, 1000)
MINIBATCH_ROWS = (64, 256, 1024)
_FEWEST_STEPS, _STEPS_PER_REPETITION = 24_000, 36
"""Agent steps of a trainer: two updates at least."""


@dataclass(frozen=True, slots=True)
class ExchangeParts:
    """Parts of one exchange, for one number of agents. Microseconds."""

    agents: int
    ping_pong: float
    bridge: float
    decode: float
    encode: float
    simulator: float
    plain_forward: float
    our_forward: float

    tick: TickCosts
    """All that the trainer does for an exchange between the message and the answer, but updates; CPU time."""

    trainer_cpu: float | None
    """CPU time of a whole trainer for an exchange, its updates included; None where it cannot be told."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(description="The raw floor of every part of the loop, in microseconds.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions")
    repetitions = 200 if parser.parse_args(argv).quick else 2000

    torch.set_num_threads(1)  # as the trainer does for small minibatches
    say(f"Measuring on {os.cpu_count()} cores, load {load()}; medians, microseconds, one torch thread ...")
    parts = [_measure(agents, repetitions) for agents in AGENTS]
    minibatches = []
    for rows in MINIBATCH_ROWS:
        say(f"  a minibatch of {rows} rows")
        minibatches.append(learning.plain_minibatch_us(rows, repetitions // 4))
    say("  an update of 12000 rows")
    update_s = learning.our_update_s(max(3, repetitions // 400), clock=time.process_time)

    print(exchange_table(parts))
    print(learning_table(minibatches, update_s))
    print(bounds_table(parts, plain_update_s(minibatches[0]), update_s))
    return 0


def _measure(agents: int, repetitions: int) -> ExchangeParts:
    say(f"  {agents} agents: simulator and codec")
    costs = measure_exchange("sim:3dball", agents, repetitions)
    say(f"  {agents} agents: wire")
    ping_pong = measure_ping_pong(costs.message, costs.reply, repetitions)
    bridge = measure_bridge(costs.handshake, costs.message, repetitions)
    say(f"  {agents} agents: a tick")
    tick = measure_tick(SCENES["3dball"], costs, repetitions)
    say(f"  {agents} agents: a trainer")
    steps = max(_FEWEST_STEPS, _STEPS_PER_REPETITION * repetitions)
    trainer = run(Ours(), Case(SCENES["3dball"], agents, steps), seed=1)
    if trainer.failure is not None:
        raise SystemExit(f"the trainer failed: {trainer.failure}")
    say(f"  {agents} agents: forward pass")
    return ExchangeParts(
        agents=agents,
        ping_pong=ping_pong,
        bridge=bridge,
        decode=costs.decode_us,
        encode=costs.encode_us,
        simulator=costs.simulator_us,
        plain_forward=learning.plain_forward_us(agents, repetitions),
        our_forward=learning.our_forward_us(agents, repetitions),
        tick=tick,
        trainer_cpu=cpu_us_per_exchange(trainer.summaries),
    )


def exchange_table(parts: Sequence[ExchangeParts]) -> str:
    """The parts of an exchange, a column for each number of agents."""
    rows = [
        ("one exchange, us", [f"{part.agents} agents" for part in parts]),
        ("gRPC ping-pong, ready-made bytes", _whole(part.ping_pong for part in parts)),
        ("  the same through our bridge, decoded and answered", _whole(part.bridge for part in parts)),
        ("our decoding of the message", _whole(part.decode for part in parts)),
        ("our encoding of the actions", _whole(part.encode for part in parts)),
        ("simulator: actions, physics, message", _whole(part.simulator for part in parts)),
        ("forward pass, plain torch", _whole(part.plain_forward for part in parts)),
        ("  ours", _whole(part.our_forward for part in parts)),
        ("CPU of a tick: decoded, recorded, acted on, encoded", _whole(part.tick.usual_us for part in parts)),
        ("  where random actions end episodes", _whole(part.tick.mixed_us for part in parts)),
        ("CPU of a whole trainer, updates included", _whole(part.trainer_cpu for part in parts)),
    ]
    return _table(rows)


def learning_table(minibatches: Sequence[float], update_s: float) -> str:
    """Gradient steps by their size, and a whole update."""
    rows = [
        ("one gradient step, us", [f"{rows} rows" for rows in MINIBATCH_ROWS]),
        ("plain torch: forward, loss, backward, Adam", _whole(minibatches)),
    ]
    plain_s = plain_update_s(minibatches[0])
    whole = [
        (f"one update, {learning.MINIBATCHES} gradient steps of 64 rows, ms", ["plain torch", "ours, CPU"]),
        ("", _whole([plain_s * 1e3, update_s * 1e3])),
    ]
    return _table(rows) + "\n" + _table(whole)


def bounds_table(parts: Sequence[ExchangeParts], plain_s: float, update_s: float) -> str:
    """Agent steps per second if the loop consisted of these parts only, one after the other."""

    def bound(part: ExchangeParts, exchange_us: float, update_s: float = 0.0) -> float:
        return steps_per_s(part.agents, exchange_us, update_s)

    rows = [
        ("agent steps/s if there were only", [f"{part.agents} agents" for part in parts]),
        ("the wire", _whole(bound(part, part.ping_pong) for part in parts)),
        (
            "the wire and the simulator",
            _whole(bound(part, part.ping_pong + part.simulator) for part in parts),
        ),
        (
            "  and plain torch's forward pass and updates",
            _whole(
                bound(part, part.ping_pong + part.simulator + part.plain_forward, plain_s) for part in parts
            ),
        ),
        (
            "our bridge, forward pass and updates, and the simulator",
            _whole(bound(part, part.bridge + part.simulator + part.our_forward, update_s) for part in parts),
        ),
    ]
    return _table(rows)


def steps_per_s(agents: int, exchange_us: float, update_s: float) -> float:
    """Agent steps per second of exchanges that are interrupted by an update every 12000 agent steps."""
    collecting_s = learning.BUFFER_SIZE / agents * exchange_us * 1e-6
    return learning.BUFFER_SIZE / (collecting_s + update_s)


def plain_update_s(minibatch_us: float) -> float:
    """The gradient steps of one update, and nothing else."""
    return learning.MINIBATCHES * minibatch_us * 1e-6


def _table(rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    return "\n".join(["", *aligned([(label, *values) for label, values in rows])])


def _whole(values: Iterable[float | None]) -> list[str]:
    return ["-" if value is None else f"{value:,.0f}" for value in values]


if __name__ == "__main__":
    sys.exit(main())
