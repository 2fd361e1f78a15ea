"""The wire's cost of an exchange in the trainer's process, with a simulator that thinks; ways to wait, side by side.

python benchmarks/wire_costs.py [--agents 12] [--think 200] [--exchanges 2000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import grpc
import numpy as np
from measuring.exchange import measure_exchange
from measuring.report import aligned
from measuring.terminal import load, say

from unity_bridge.server.bridge import Bridge, BridgeSettings, Departure
from unity_bridge.simulators.conversation import goodbye
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.transport.endpoint import METHOD, SERVICE
from unity_bridge.transport.inbox import Inbox

WAYS: Mapping[str, Mapping[str, str]] = {
    "as it is": {},
    "without fast paths": {"TRAINER_SERVICE_SLOW": "1"},
    "sockets read by the reader of the queue": {"GRPC_EXPERIMENTS": "-event_engine_listener"},
    "the same, and 2 x the think time of spinning": {
        "GRPC_EXPERIMENTS": "-event_engine_listener",
        "SPIN": "2",
    },
}
"""Variables of the environment for each way to wait. Only grpcio 1.76 to 1.85 are known to have the second."""

QUANTILES = (0.05, 0.5)
_WINDOW = 10
"""Exchanges that are measured together. On a busy machine a few windows are undisturbed: see the lower quantile."""

_WARM_UP = 100
_PATIENCE_S = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(description="CPU and wall time of an exchange, in microseconds.")
    parser.add_argument("--agents", type=int, default=12)
    parser.add_argument(
        "--think", type=int, default=200, help="what the simulator takes for a step, microseconds"
    )
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way, in turns")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        print(json.dumps(_measure(options.agents, options.think, options.exchanges)))
        return 0
    say(f"Measuring on {os.cpu_count()} cores, load {load()} ...")
    windows: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(options.repeats):
        for way, variables in WAYS.items():
            windows[way] += _run(options, variables)
    rows = [("us per exchange, 5 % quantile and median", ["wall", "", "CPU", ""])]
    rows += [(way, _quantiles(windows[way])) for way in WAYS]
    print("\n".join(aligned([(label, *values) for label, values in rows])))
    return 0


def _run(options: argparse.Namespace, variables: Mapping[str, str]) -> list[tuple[float, float]]:
    """Measures one way in a process of its own, because gRPC reads variables once."""
    arguments = [f"--{name}={getattr(options, name)}" for name in ("agents", "think", "exchanges")]
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *arguments],
        env={**os.environ, **variables},
        check=True,
        stdout=subprocess.PIPE,
    )
    return [(wall, cpu) for wall, cpu in json.loads(done.stdout)]


def _quantiles(windows: Sequence[tuple[float, float]]) -> list[str]:
    """Wall and CPU microseconds of an exchange, each at both quantiles."""
    return [f"{value:,.0f}" for value in np.quantile(np.array(windows), QUANTILES, axis=0).T.ravel()]


def _measure(agents: int, think_us: int, exchanges: int) -> list[tuple[float, float]]:
    """Wall and CPU microseconds of an exchange, of each window: decoded, and answered with zeros."""
    if spins := float(os.environ.get("SPIN", "0")):
        _spin(spins * think_us * 1e-6)
    costs = measure_exchange("sim:3dball", agents, _WARM_UP)
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    with Bridge(BridgeSettings(seed=1)) as bridge:
        arguments = (bridge.listen(port=0), costs.handshake, costs.message, exchanges, think_us)
        client = spawn.Process(target=_play, args=arguments, daemon=True)
        client.start()
        stamps = _serve(bridge)
        client.join()
    taken = np.diff(np.array(stamps[_WARM_UP::_WINDOW]), axis=0) / _WINDOW * 1e6
    return [(float(wall), float(cpu)) for wall, cpu in taken]


def _serve(bridge: Bridge) -> list[tuple[float, float]]:
    """Answers until the simulator leaves. Returns both clocks after each answer."""
    specs: dict[str, BehaviorSpec] = {}
    stamps: list[tuple[float, float]] = []
    while True:
        for event in bridge.receive(_PATIENCE_S):
            if isinstance(event, Departure):
                return stamps
            specs.update(event.new_specs)
            actions = {
                name: ActionBatch.zeros(len(batch) - batch.num_terminal, specs[name].action_spec)
                for name, batch in event.steps.items()
            }
            bridge.reply(event.simulator, actions)
            stamps.append((time.perf_counter(), time.process_time()))


def _spin(spin_s: float) -> None:
    """Lets every inbox ask again and again for so long before it sleeps."""
    sleep: Callable[[Inbox, float], bool] = Inbox.poll

    def poll(inbox: Inbox, timeout: float) -> bool:
        until = time.monotonic() + min(spin_s, timeout)
        while time.monotonic() < until:
            if sleep(inbox, 0.0):
                return True
        return sleep(inbox, timeout)

    Inbox.poll = poll  # type: ignore[method-assign]


def _play(port: int, handshake: Sequence[bytes], message: bytes, exchanges: int, think_us: int) -> None:
    """The simulator: it computes for so long, then asks."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        for unmeasured in handshake:
            call(unmeasured, wait_for_ready=True)
        for _ in range(exchanges):
            until = time.perf_counter_ns() + think_us * 1000
            while time.perf_counter_ns() < until:
                pass
            call(message)
        call(goodbye())


if __name__ == "__main__":
    sys.exit(main())
