"""The gRPC edge by itself: calls are parked, answered, refused, and let go."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

import grpc
import pytest

from unity_bridge.transport import limits
from unity_bridge.transport.endpoint import Call, Endpoint, HangUp, is_loopback, readable
from unity_bridge.transport.inbox import Inbox, can_serve_directly

PATIENCE_S = 60.0


def parked(inbox: Inbox) -> Call:
    call = inbox.get(timeout=PATIENCE_S)
    assert isinstance(call, Call)
    return call


def serve_until(inbox: Inbox, done: Callable[[], bool]) -> None:
    """Reads an inbox in which nothing but the server's own business is expected."""
    deadline = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < deadline:
        with pytest.raises(Empty):
            inbox.get(timeout=0.01)


def test_a_refusal_of_any_length_arrives(endpoint: Endpoint, inbox: Inbox, connect: Any) -> None:
    sent = connect(endpoint.port).raw_call(b"")
    parked(inbox).refuse("🎱" * 100_000)
    assert sent.exception(PATIENCE_S).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert set(sent.details()) == {"🎱"}


def test_a_hang_up_is_reported_only_for_open_calls(endpoint: Endpoint, inbox: Inbox, connect: Any) -> None:
    client = connect(endpoint.port)
    answered = client.raw_call(b"first")
    parked(inbox).answer(b"")
    answered.result(PATIENCE_S)
    cancelled = client.raw_call(b"second")
    call = parked(inbox)  # and no hang-up of the first before it
    cancelled.cancel()
    news = inbox.get(timeout=PATIENCE_S)
    assert isinstance(news, HangUp)
    assert news.call is call


def test_more_calls_than_there_is_room_for_are_refused(
    endpoint: Endpoint, inbox: Inbox, connect: Any
) -> None:
    client = connect(endpoint.port)
    sent = [
        client.raw_call(str(number).encode()) for number in range(3)
    ]  # its own place, and the two for all
    calls = [parked(inbox) for _ in sent]
    surplus = client.raw_call(b"3")
    serve_until(inbox, surplus.done)
    assert surplus.exception(PATIENCE_S).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    neighbour = connect(endpoint.port).raw_call(b"a neighbour's first")
    calls.append(parked(inbox))
    for call in calls:
        call.answer(call.data)
    assert [each.result(PATIENCE_S) for each in sent] == [b"0", b"1", b"2"]
    assert neighbour.result(PATIENCE_S) == b"a neighbour's first"


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_both_sides_hear_that_an_inflated_message_is_too_large(
    inbox: Inbox,
    connect: Any,
    compression: grpc.Compression | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(limits, "LARGEST_MESSAGE", 2**20)
    endpoint = Endpoint("127.0.0.1", 0, inbox, capacity=2)
    client = connect(endpoint.port)
    with grpc.insecure_channel(endpoint.address) as channel:
        call = channel.unary_unary("/communicator_objects.UnityToExternalProto/Exchange")
        too_large = call.future(bytes(2**22), compression=compression)
        fits = client.raw_call(bytes(2**20))
        parked(inbox).answer(b"it fits")
        assert fits.result(PATIENCE_S) == b"it fits"
        serve_until(inbox, too_large.done)
    assert too_large.exception().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "essage larger than max" in too_large.details()
    endpoint.stop()
    assert "did not arrive: it was larger than 1 MiB, or" in caplog.text


@pytest.mark.parametrize(
    "compression", [grpc.Compression.Gzip, grpc.Compression.Deflate], ids=["gzip", "deflate"]
)
def test_a_compressed_message_may_grow_with_what_was_said_before(
    endpoint: Endpoint, inbox: Inbox, compression: grpc.Compression
) -> None:
    before, after = limits.LARGEST_HANDSHAKE, limits.LARGE_MESSAGE
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(endpoint.address, options=options, compression=compression) as channel:
        call = channel.unary_unary("/communicator_objects.UnityToExternalProto/Exchange")

        def is_taken(size: int) -> bool:
            sent = call.future(bytes(size))
            if size > (before if is_greeting else after):
                serve_until(inbox, sent.done)
                assert sent.exception().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                return False
            received = parked(inbox)
            assert received.data == bytes(size)
            received.answer(b"")
            assert sent.result(PATIENCE_S) == b""
            return True

        is_greeting = True
        assert not is_taken(before + 1)
        assert [is_taken(before), is_taken(100)] == [True, True]
        is_greeting = False
        assert [is_taken(after), is_taken(after + 1), is_taken(100)] == [True, False, True]


def test_stopping_lets_parked_calls_go(inbox: Inbox, connect: Callable[[int], Any]) -> None:
    endpoint = Endpoint("127.0.0.1", 0, inbox, capacity=2)
    sent = connect(endpoint.port).raw_call(b"")
    parked(inbox)
    endpoint.stop()
    assert isinstance(sent.exception(PATIENCE_S), grpc.RpcError)


@pytest.mark.skipif(not can_serve_directly(), reason="the installed grpcio has another core interface")
def test_a_call_that_is_unread_when_stopping_is_ended(
    connect: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(direct=True)
    endpoint = Endpoint("127.0.0.1", 0, inbox, capacity=2)
    sent = connect(endpoint.port).raw_call(b"")
    arrived = [
        inbox.completion_queue.poll(deadline=time.time() + PATIENCE_S)
    ]  # in gRPC's queue, and not acted upon

    def poll(timeout: float) -> bool:
        event = arrived.pop() if arrived else None
        return Inbox.poll(inbox, timeout) if event is None else event.tag(event)

    monkeypatch.setattr(inbox, "poll", poll)
    endpoint.stop()
    assert sent.exception(PATIENCE_S).code() is grpc.StatusCode.UNAVAILABLE


def test_other_methods_are_unimplemented(endpoint: Endpoint, inbox: Inbox) -> None:
    with grpc.insecure_channel(endpoint.address) as channel:
        other = channel.unary_unary("/communicator_objects.UnityToExternalProto/Initialize")
        sent = other.future(b"", timeout=PATIENCE_S)
        serve_until(inbox, sent.done)
        assert sent.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_an_address_that_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8", "::ffff:192.0.2.1", "fe80::1"])
def test_an_address_that_other_machines_reach(host: str) -> None:
    assert not is_loopback(host)


def test_a_name_with_an_address_that_others_reach_is_not_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.1", "192.0.2.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert not is_loopback("both")


def test_a_relayed_peer_is_told_without_its_secret() -> None:
    assert readable("relay:office-pc/3-0123456789abcdef") == "office-pc/3"
    assert readable("ipv6:%5B::1%5D:50123") == "[::1]:50123"
