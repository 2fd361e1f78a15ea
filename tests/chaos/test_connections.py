"""Connections that come in crowds, hold calls, reset them or speak something else, while a run trains."""

from __future__ import annotations

import os
import random
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
from fault_counts import COUNT
from http2 import ACK, PREFACE, SETTINGS, Line, frame, headers, message, reset
from processes import wait_until

from unity_bridge.simulators.conversation import introduction

MIB = 1 << 20
LONGEST_WAIT_S = 10.0
"""The healthy simulator's for one answer: a bound against a standstill, not a measure of speed."""

OK = b"\x0a\x02\x08\x00"


def silent_tcp(port: int, count: int, lines: ExitStack) -> None:
    for _ in range(count):
        lines.enter_context(Line(port, greet=False))


def silent_calls(port: int, count: int, lines: ExitStack) -> None:
    """Opens far more calls on one connection than may wait at an attach port."""
    line = lines.enter_context(Line(port))
    for call in range(count):
        line.send(headers(2 * call + 1))
        line.drain()
        if call % 100 == 99:
            time.sleep(0.1)


def silent_calls_on_many(port: int, count: int, lines: ExitStack) -> None:
    """Opens as many calls on each of many connections as one may have at once."""
    for first in range(0, count, 16):
        line = lines.enter_context(Line(port))
        line.send(b"".join(headers(2 * call + 1) for call in range(16)))
        line.drain()
        if first % 160 == 0:
            time.sleep(0.1)


def begun_and_reset(port: int, count: int, lines: ExitStack) -> None:
    with Line(port) as line:
        for call in range(count):
            if not line.send(headers(2 * call + 1) + reset(2 * call + 1)):
                return
            line.drain()


def a_byte_now_and_then(port: int, count: int, lines: ExitStack) -> None:
    opened = [lines.enter_context(Line(port)) for _ in range(count)]
    data = headers(1) + message(1, introduction())
    for place in range(0, len(data), 4):
        for line in opened:
            line.send(data[place : place + 4])


def vanishing(port: int, count: int, lines: ExitStack) -> None:
    """Gone after any number of bytes of a handshake."""
    dice = random.Random(1)
    data = PREFACE + frame(SETTINGS, 0, 0) + headers(1) + message(1, introduction())
    data += headers(3) + message(3, OK)
    for _ in range(count):
        with Line(port, greet=False) as line:
            line.send(data[: dice.randrange(len(data))])


def other_protocols(port: int, count: int, lines: ExitStack) -> None:
    noises = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
        os.urandom(4096),
        PREFACE + frame(0x7F, 0xFF, 2**31 - 1, b"?" * 100),
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
        PREFACE + frame(SETTINGS, ACK, 0) + frame(1, 4, 0, b"\xff" * 50),
    ]
    for number in range(count):
        with Line(port, greet=False) as line:
            line.send(noises[number % len(noises)])


def large_declared(port: int, count: int, lines: ExitStack) -> None:
    for _ in range(count):
        line = lines.enter_context(Line(port))
        line.send(headers(1) + message(1, b"\x0a" * 100, length=2**32 - 1, end=False))


@cache
def bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(800)), packer.flush()])


def gzip_bombs(port: int, count: int, lines: ExitStack) -> None:
    """A message of 0.8 MB that says it unfolds to 800."""
    for _ in range(count):
        line = lines.enter_context(Line(port))
        line.send(headers(1, grpc_encoding="gzip"))
        line.pour(1, bomb(), compressed=True)


Attack = Callable[[int, int, ExitStack], None]

ATTACKS: dict[str, tuple[Attack, int, int]] = {
    "silent TCP connections": (silent_tcp, 0, 500),
    "silent calls on one connection": (silent_calls, 0, 5000),
    "silent calls on many connections": (silent_calls_on_many, 1000, 8000),
    "HEADERS and RST_STREAM": (begun_and_reset, 10_000, 400_000),
    "handshakes that trickle": (a_byte_now_and_then, 20, 200),
    "connections that vanish in a handshake": (vanishing, 100, 3000),
    "TLS, HTTP/1, bytes of chance": (other_protocols, 0, 2000),
    "4 GB declared": (large_declared, 20, 200),
    "gzip bombs of 0.8 MB": (gzip_bombs, 0, 20),
}


def tried() -> Iterator[Any]:
    """Yields every attack with its counts: the long ones, and the short ones that once threw a simulator out."""
    for attack, (act, short, long) in ATTACKS.items():
        if short:
            yield pytest.param(attack, act, short, id=f"{attack}-short")
        marks = [pytest.mark.chaos, pytest.mark.timeout(1800)]
        yield pytest.param(attack, act, int(COUNT or long), id=f"{attack}-long", marks=marks)


@pytest.mark.parametrize(("attack", "act", "count"), list(tried()))
def test_nobody_is_thrown_out(arena, note, attack: str, act: Attack, count: int) -> None:
    trainer, memory, files = arena.trainer, arena.trainer.memory(), arena.trainer.files()
    began = time.monotonic()
    with ExitStack() as lines:
        act(arena.port, count, lines)
        lasted = time.monotonic() - began
        arena.witness.go_on()
        waited = arena.witness.longest_wait(began)
    arena.witness.go_on()
    grown = (trainer.memory() - memory) / MIB
    wait_until(
        lambda: trainer.poll() is not None or trainer.files() <= files + 20,
        "closed connections to be given back",
        60,
    )
    note(
        attack,
        f"{count} in {lasted:.1f} s",
        f"the healthy one waited {waited:.2f} s at most; {grown:+.0f} MB; {trainer.files() - files:+d} files",
    )
    arena.require_peace()
    assert waited < LONGEST_WAIT_S
    assert grown < 320  # a message may have 256 MiB, and who allocates memory keeps it
