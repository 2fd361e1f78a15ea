"""Many visitors that each keep to their limits: what they take together, beside a healthy simulator."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from fault_counts import fault_counts
from mutations import conversation
from processes import wait_until
from raw_clients import EXCHANGE, OPTIONS

from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

MIB = 1 << 20
BEHAVIOR = "3DBall?team=0"
VISITORS = 6
LONGEST_WAIT_S = 20.0
"""The healthy simulator's for one answer: a bound against a standstill; figures are in docs/results/reliability.md."""


def handshake() -> list[bytes]:
    return conversation(random.Random(1), BEHAVIOR)[:2]


def rows_of(size: int) -> bytes:
    """A first step of so many bytes: the rows of sixty thousand agents, with a field that nobody knows."""
    message = UnityMessageProto.FromString(conversation(random.Random(2), BEHAVIOR)[2])
    rows = message.unity_output.rl_output.agentInfos[BEHAVIOR].value
    del rows[1:]
    row, agents = rows.pop(), 60_000
    for agent in range(agents):
        row.id = agent + 1
        row.reward = 0.5 + agent
        rows.append(row)
    filler = bytes(max((size - message.ByteSize()) // agents - 6, 0))
    unknown = b"\x92\x03" + bytes([len(filler) & 127 | 128, len(filler) >> 7]) + filler  # field 50
    for each in rows:
        each.MergeFromString(unknown)
    return message.SerializeToString()


def description_of(size: int) -> bytes:
    """A first step that describes a behavior in so many bytes."""
    message = UnityMessageProto.FromString(conversation(random.Random(2), BEHAVIOR)[2])
    (parameters,) = message.unity_output.rl_initialization_output.brain_parameters
    parameters.vector_action_descriptions_deprecated.extend(["d" * MIB] * (size // MIB))
    return message.SerializeToString()


def zeros_of(size: int) -> bytes:
    return bytes(size)


def speak(port: int, step: bytes, compression: grpc.Compression, *, greets: bool) -> bool:
    """One visitor: the handshake, if it greets, and a message. Returns whether the message was refused."""
    options = [*OPTIONS, ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options, compression=compression) as channel:
        exchange = channel.unary_unary(EXCHANGE)
        for message in handshake() if greets else ():
            exchange(message, timeout=60)
        try:
            exchange(step, timeout=300)
        except grpc.RpcError:
            return True
    return False


# gRPC holds one three times while it is handed over: as read, in pieces, and in one. The rest is its agents'.
KINDS: dict[str, tuple[Callable[[int], bytes], grpc.Compression, bool, float]] = {
    "rows": (rows_of, grpc.Compression.NoCompression, True, 5),
    "descriptions": (description_of, grpc.Compression.NoCompression, True, 5),
    "gzip": (rows_of, grpc.Compression.Gzip, True, 0),
    "before the introduction": (zeros_of, grpc.Compression.NoCompression, False, 2 * VISITORS),
    "gzip before the introduction": (zeros_of, grpc.Compression.Gzip, False, 0),
    "deflate before the introduction": (zeros_of, grpc.Compression.Deflate, False, 0),
}
"""What is sent, how it is compressed, whether the sender introduces itself before, and how many times its size all of
them may take."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == "descriptions" else pytest.mark.thorough) for kind in KINDS],
)
@fault_counts(30, 200)
def test_large_messages_at_once(arena, note, kind: str, count: int) -> None:
    """``count`` megabytes each."""
    make, compression, greets, times = KINDS[kind]
    step = make(count * MIB)
    trainer, before = arena.trainer, arena.trainer.memory()
    most, over = [before], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most.append(trainer.memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    with ThreadPoolExecutor(VISITORS) as visitors:
        refused = sum(
            visitors.map(lambda _: speak(arena.port, step, compression, greets=greets), range(VISITORS))
        )
    lasted = time.monotonic() - began
    over.set()
    watcher.join()
    arena.witness.go_on()
    waited = arena.witness.longest_wait(began)
    wait_until(
        lambda: trainer.memory() < before + 50 * MIB or time.monotonic() > began + lasted + 5, "memory", 30
    )
    grown, peak = (trainer.memory() - before) / MIB, (max(most) - before) / MIB
    note(
        f"{VISITORS} large messages at once: {kind}",
        f"{len(step) / MIB:.0f} MB each, {lasted:.1f} s",
        f"{refused} refused; the healthy one waited {waited:.2f} s at most; {peak:+.0f} MB at most, {grown:+.0f} MB "
        "after they left",
    )
    arena.require_peace()
    assert waited < LONGEST_WAIT_S
    assert peak < times * count + (300 if times else 100)
    assert grown < 150
