"""An exchange behind a relay beside a direct one, on loopback: without encryption, and with TLS and a token.

python benchmarks/relayed_exchange.py [--agents 12] [--think 5000] [--exchanges 500] [--repeats 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from measuring.exchange import ExchangeCosts, measure_exchange
from measuring.report import aligned
from measuring.terminal import load, say

from unity_bridge.relay.relay import Relay
from unity_bridge.remote.access import RemoteAccess
from unity_bridge.remote.dialing import PlainConnection, TrainerConnection
from unity_bridge.remote.join_code import JoinCode
from unity_bridge.remote.private_files import FOLDER_VARIABLE
from unity_bridge.server.bridge import Bridge, BridgeSettings, Departure
from unity_bridge.simulators.conversation import goodbye
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

WAYS = {
    "direct": (False, False),
    "behind a relay": (True, False),
    "direct, TLS and token": (False, True),
    "behind a relay, TLS and token": (True, True),
}
"""Whether there is a relay, and whether the port has TLS and a token."""

QUANTILES = (0.05, 0.5)
"""On a busy machine few exchanges are undisturbed: see the lower one."""

_WARM_UP = 100
_PATIENCE_S = 60.0
_SPAWN = multiprocessing.get_context("spawn")  # gRPC does not survive a fork


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Time of an exchange as its simulator waits for it.")
    parser.add_argument("--agents", type=int, default=12)
    parser.add_argument("--think", type=int, default=5000, help="pause of the simulator, microseconds")
    parser.add_argument("--exchanges", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way, in turns")
    options = parser.parse_args(argv)
    say(f"Measuring on {os.cpu_count()} cores, load {load()} ...")
    waits: dict[str, list[float]] = {way: [] for way in WAYS}
    costs = measure_exchange("sim:3dball", options.agents, 100)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        for _ in range(options.repeats):
            for way, (is_relayed, is_secured) in WAYS.items():
                waits[way] += measure(
                    costs, options.exchanges, options.think, is_relayed=is_relayed, is_secured=is_secured
                )
    print("\n".join(aligned(table(waits))))
    return 0


def table(waits: dict[str, list[float]]) -> list[tuple[str, ...]]:
    """Rows of a simulator's waiting time in each way, at both quantiles, and the ratio to a direct exchange."""
    direct = np.quantile(waits["direct"], QUANTILES)
    rows = [("us that a simulator waits: 5 % quantile and median", "", "", "ratios", "")]
    for way, found in waits.items():
        quantiles = np.quantile(found, QUANTILES)
        rows.append(
            (way, *(f"{each:,.0f}" for each in quantiles), *(f"{each:.2f}" for each in quantiles / direct))
        )
    return rows


def measure(
    costs: ExchangeCosts, exchanges: int, think_us: int, *, is_relayed: bool, is_secured: bool
) -> list[float]:
    """Returns how long the simulator waited for each reply, in microseconds, after the first ones."""
    access = RemoteAccess.open() if is_secured else None
    with Bridge(BridgeSettings(seed=1)) as bridge:
        port = bridge.listen("127.0.0.1", 0, access)
        code = access.join_code() if access is not None else None
        join = JoinCode((f"127.0.0.1:{port}",), code.token, code.fingerprint).text() if code else ""
        address = f"127.0.0.1:{port}"
        with _relay(address, join) if is_relayed else _nothing(address, join) as (target, code_there):
            found = _SPAWN.SimpleQueue()
            arguments = (target, code_there, costs.handshake, costs.message, exchanges, think_us, found)
            simulator = _SPAWN.Process(target=_play, args=arguments, daemon=True)
            simulator.start()
            _serve(bridge)
            waited: list[float] = found.get()
            simulator.join()
    return waited


@contextmanager
def _nothing(address: str, join: str) -> Iterator[tuple[str, str]]:
    yield address, join


@contextmanager
def _relay(address: str, join: str) -> Iterator[tuple[str, str]]:
    """Runs a relay in a process of its own. Yields where its simulator attaches, without a code."""
    ports = _SPAWN.SimpleQueue()
    process = _SPAWN.Process(target=_carry, args=(address, join, ports), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{ports.get()}", ""
    finally:
        process.terminate()
        process.join()


def _carry(address: str, join: str, ports: multiprocessing.SimpleQueue[int]) -> None:
    with Relay(BridgeSettings(seed=1), lambda: _connection(address, join)) as relay:
        ports.put(relay.listen(0))
        relay.run()


def _connection(address: str, join: str) -> PlainConnection | TrainerConnection:
    return TrainerConnection(JoinCode.parse(join)) if join else PlainConnection(address)


def _play(
    address: str,
    join: str,
    handshake: Sequence[bytes],
    message: bytes,
    exchanges: int,
    think_us: int,
    found: multiprocessing.SimpleQueue[list[float]],
) -> None:
    """The simulator: it pauses for so long, as a build that computes on another machine, then asks."""
    exchange: Callable[[bytes], bytes] = _connection(address, join).exchange
    for unmeasured in handshake:
        exchange(unmeasured)
    waits: list[float] = []
    for _ in range(_WARM_UP + exchanges):
        time.sleep(think_us * 1e-6)
        asked = time.perf_counter()
        exchange(message)
        waits.append((time.perf_counter() - asked) * 1e6)
    found.put(waits[_WARM_UP:])
    exchange(goodbye())


def _serve(bridge: Bridge) -> None:
    """Answers with zeros until the simulator leaves."""
    specs: dict[str, BehaviorSpec] = {}
    while True:
        for event in bridge.receive(_PATIENCE_S):
            if isinstance(event, Departure):
                return
            specs.update(event.new_specs)
            actions = {
                name: ActionBatch.zeros(len(batch) - batch.num_terminal, specs[name].action_spec)
                for name, batch in event.steps.items()
            }
            bridge.reply(event.simulator, actions)


if __name__ == "__main__":
    raise SystemExit(main())
