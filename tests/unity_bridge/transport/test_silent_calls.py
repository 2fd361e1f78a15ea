"""Calls that are begun and bring no message: they never cost other clients their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import pytest
from http2 import ACK, SETTINGS, Line, frame, headers, message, reset

from unity_bridge.transport import direct_server, limits, threaded_server
from unity_bridge.transport import inbox as inboxes
from unity_bridge.transport.endpoint import Call, Endpoint, HangUp
from unity_bridge.transport.inbox import Inbox, can_serve_directly

PATIENCE_S = 60.0
needs_core = pytest.mark.skipif(
    not can_serve_directly(), reason="the installed grpcio has another core interface"
)


def begin(calls: int, *, first: int = 0, take_back: bool = False) -> bytes:
    """Calls that say nothing, and perhaps are taken back at once."""
    streams = [2 * number + 1 for number in range(first, first + calls)]
    return b"".join(headers(stream) + (reset(stream) if take_back else b"") for stream in streams)


@pytest.fixture
def attack() -> Iterator[Callable[[int], Line]]:
    """Opens connections that misbehave."""
    clients: list[Line] = []

    def make(port: int) -> Line:
        clients.append(Line(port))
        clients[-1].send(frame(SETTINGS, ACK, 0))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def exchange(client: Any, inbox: Inbox) -> bytes:
    """One message there and back."""
    sent = client.raw_call(b"a message")
    call = inbox.get(timeout=PATIENCE_S)
    assert call.data == b"a message"
    call.answer(b"an answer")
    answer: bytes = sent.result(PATIENCE_S)
    return answer


def test_they_take_no_place_of_other_calls(
    endpoint: Endpoint, inbox: Inbox, connect: Any, attack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (direct_server, threaded_server):
        monkeypatch.setattr(module, "MOST_SILENT_CALLS", 8)
    healthy = connect(endpoint.port)
    assert exchange(healthy, inbox) == b"an answer"
    for _ in range(4):
        attack(endpoint.port).send(begin(1100))
    for _ in range(20):
        assert exchange(healthy, inbox) == b"an answer"


def test_cancelled_calls_do_not_stop_the_others(
    endpoint: Endpoint, inbox: Inbox, connect: Any, attack: Any
) -> None:
    healthy = connect(endpoint.port)
    attacker = attack(endpoint.port)
    for number in range(20):
        attacker.send(begin(500, first=500 * number, take_back=True))
        assert exchange(healthy, inbox) == b"an answer"


def test_they_are_ended_after_a_time(
    endpoint: Endpoint, inbox: Inbox, attack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inboxes, "_WATCH_S", 0.0)
    silent = attack(endpoint.port)
    silent.send(begin(limits.CALLS_PER_CONNECTION))
    stream = 2 * limits.CALLS_PER_CONNECTION + 1
    for module in (direct_server, threaded_server):
        monkeypatch.setattr(module, "SILENT_CALL_S", 0.0)
    while True:  # all streams of the connection were taken: one more is heard when they are over
        silent.send(headers(stream) + message(stream, b"at last"))
        stream += 2
        try:
            assert inbox.get(timeout=0.05).data == b"at last"
            return
        except Empty:
            continue


@needs_core
def test_one_message_of_a_connection_is_read_at_a_time(connect: Any, attack: Any) -> None:
    inbox = Inbox(direct=True)
    endpoint = Endpoint("127.0.0.1", 0, inbox, capacity=2)
    client = attack(endpoint.port)
    client.send(headers(1) + headers(3) + message(3, b"behind it"))
    with pytest.raises(Empty):
        inbox.get(timeout=0.2)
    client.send(reset(1))
    call = inbox.get(timeout=PATIENCE_S)
    assert isinstance(call, Call)
    assert call.data == b"behind it"
    call.answer(b"")
    endpoint.stop()


def test_a_flood_does_not_keep_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox()
    assert inbox.completion_queue is not None  # from now on it is read
    turns = []
    monkeypatch.setattr(inbox, "poll", lambda timeout: turns.append(timeout) or True)
    with pytest.raises(Empty):
        inbox.get(timeout=0.0)
    assert not inbox.empty()
    assert len(turns) < 1000
    inbox.put(HangUp)
    assert inbox.get(timeout=0.0) is HangUp
