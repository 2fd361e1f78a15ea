"""How fast ``mlagents-style serve`` answers: decisions per second and the time of a call, by callers in a message.

    python benchmarks/serving.py [--seconds 3]

The policies are those of 3DBall and Hallway, untrained: two layers of 128 units, the second with an LSTM. Service and
load are processes of their own, and the CPU time of each is told apart: on a busy machine look there first. The load
waits for each answer before it sends the next message. Beside it: a server of gRPC that decides nothing, and a loop
over the policy in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import psutil
import torch

from trainer_service import load_policy
from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.runs.checkpoint import save_checkpoint
from unity_bridge.serving.server import SERVICE
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.wire.policy_service_pb2 import ActRequest, Observation

CALLERS_WITH_MEMORY = 1000
MLP, LSTM = "MLP", "LSTM"
SPECS = {
    MLP: BehaviorSpec((ObservationSpec("vector", (8,)),), ActionSpec(2)),
    LSTM: BehaviorSpec((ObservationSpec("rays", (30,)),), ActionSpec(0, (5,))),
}


class Load(NamedTuple):
    """The work of one process of clients."""

    clients: int
    """Calls at once, each on a channel of its own."""
    callers: int
    """In a message."""
    streams: bool = False


class Figures(NamedTuple):
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    load_us: float
    """CPU time of the load, for a message."""


def write_runs(folder: Path) -> None:
    """Writes an untrained run for each policy."""
    for name, spec in SPECS.items():
        network = {"hidden_units": 128, "num_layers": 2}
        memory = {"memory": {"memory_size": 128, "sequence_length": 64}} if name == LSTM else {}
        settings = TrainerSettings.model_validate(
            {"trainer_type": "ppo", "network_settings": network | memory}
        )
        behavior = Behavior(name, spec, settings, Compute(torch.device("cpu"), 1))
        save_checkpoint(checkpoint_of(behavior), folder / name / name / "checkpoint.safetensors")
        (folder / name / "configuration.yaml").touch()


@contextmanager
def service(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The port and the process of a service of all runs."""
    command = [
        sys.executable,
        "-m",
        "trainer_service",
        "serve",
        *SPECS,
        f"--results-dir={folder}",
        "--port=0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().rpartition(":")[2]), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


async def _serve_nothing(ready: Connection) -> None:
    async def once(data: bytes, context: object) -> bytes:
        return data

    async def stream(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for data in requests:
            yield data

    server = grpc.aio.server()
    handlers = {
        "Act": grpc.unary_unary_rpc_method_handler(once),
        "ActStream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ready.send(port)
    await server.wait_for_termination()


def _nothing(ready: Connection) -> None:
    asyncio.run(_serve_nothing(ready))


@contextmanager
def server_of_nothing() -> Iterator[tuple[int, psutil.Process]]:
    """The port and the process of a server that sends each message back."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_nothing, args=(theirs,))
    process.start()
    try:
        yield ours.recv(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


def messages(policy: str, callers: int) -> Iterator[bytes]:
    """Yields messages of random observations; with memory, of the next callers of all."""
    shape = (callers, *SPECS[policy].observation_specs[0].shape)
    seen = np.random.default_rng(0).normal(size=shape).astype("<f4")
    observation = Observation(shape=shape, floats=seen.tobytes())
    ids = [f"caller {i}" for i in range(CALLERS_WITH_MEMORY)] if policy == LSTM else []
    groups = [ids[i : i + callers] for i in range(0, len(ids), callers)] or [[]]
    made = [ActRequest(run=policy, ids=each, observations=[observation]) for each in groups]
    return itertools.cycle([each.SerializeToString() for each in made])


async def _load(port: int, policy: str, load: Load, seconds: float) -> list[float]:
    took: list[float] = []
    sent, end = messages(policy, load.callers), time.perf_counter() + seconds
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(load.clients)]

    async def client(channel: grpc.aio.Channel) -> None:
        act, call = channel.unary_unary(f"/{SERVICE}/Act"), None
        if load.streams:
            call = channel.stream_stream(f"/{SERVICE}/ActStream")()
        while (began := time.perf_counter()) < end:
            if call is None:
                await act(next(sent))
            else:
                await call.write(next(sent))
                await call.read()
            took.append(time.perf_counter() - began)

    await asyncio.gather(*map(client, channels))
    for channel in channels:
        await channel.close()
    return took


def _measure(port: int, policy: str, load: Load, seconds: float, result: Connection) -> None:
    asyncio.run(_load(port, policy, load, 0.5))  # connections, and the service's first batches
    result.send("warm")
    cpu = time.process_time()
    took = asyncio.run(_load(port, policy, load, seconds))
    p50, p99 = np.percentile(took, [50, 99]) * 1000
    result.send(Figures(len(took) / seconds, p50, p99, (time.process_time() - cpu) / len(took) * 1e6))


def measure(place: str, at: tuple[int, psutil.Process], policy: str, load: Load, seconds: float) -> None:
    """Prints one line."""
    port, process = at
    ours, theirs = multiprocessing.Pipe()
    clients = multiprocessing.Process(target=_measure, args=(port, policy, load, seconds, theirs))
    clients.start()
    ours.recv()  # it is warm
    before = sum(process.cpu_times()[:2])
    found: Figures = ours.recv()
    service_us = (sum(process.cpu_times()[:2]) - before) / (found.calls_per_s * seconds) * 1e6
    clients.join()
    kind = "streams" if load.streams else "calls"
    print(
        f"| {place} | {load.clients} {kind} | {load.callers} | {found.calls_per_s * load.callers:,.0f} | "
        f"{found.calls_per_s:,.0f} | {found.p50_ms:.2f} | {found.p99_ms:.2f} "
        f"| {service_us:,.0f} | {found.load_us:,.0f} |",
        flush=True,
    )


def measure_loop(folder: Path, name: str, callers: int, seconds: float) -> None:
    """Prints the line of a loop over ``Policy.predict`` in this process."""
    policy, memories = load_policy(folder / name), None
    seen = np.zeros((callers, *policy.spec.observation_specs[0].shape), np.float32)
    took, end, cpu = [], time.perf_counter() + seconds, time.process_time()
    while (began := time.perf_counter()) < end:
        _, memories = policy.predict(seen, memories)
        took.append(time.perf_counter() - began)
    p50, p99 = np.percentile(took, [50, 99]) * 1000
    rate = len(took) / seconds
    print(
        f"| {name}, in process | loop | {callers} | {rate * callers:,.0f} | {rate:,.0f} | {p50:.2f} | {p99:.2f} "
        f"| {(time.process_time() - cpu) / len(took) * 1e6:,.0f} | |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures mlagents-style serve.")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each line (default 3)")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    multiprocessing.set_start_method("spawn")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{platform.machine()}, {os.cpu_count()} cores, load before {load}; Python {platform.python_version()}, "
          f"grpcio {grpc.__version__}, torch {torch.__version__}\n")  # fmt: skip
    print("| policy | clients | callers a message | decisions/s | messages/s | p50 ms | p99 ms "
          "| CPU µs a message: service | load |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_runs(folder)
        for name in SPECS:
            for callers in (1, 20, 200):
                measure_loop(folder, name, callers, seconds / 3)
        with service(folder) as at:
            for name in SPECS:
                for each in (Load(1, 1), Load(2, 20), Load(2, 200), Load(20, 1), Load(20, 1, streams=True)):
                    measure(name, at, name, each, seconds)
        with server_of_nothing() as at:
            for each in (Load(1, 1), Load(2, 20), Load(20, 1), Load(20, 1, streams=True)):
                measure("none", at, MLP, each, seconds)


if __name__ == "__main__":
    main()
