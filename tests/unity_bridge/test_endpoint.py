"""The gRPC edge by itself: calls are parked, answered, refused, and let go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from unity_bridge.endpoint import Call, Endpoint, HangUp, Server
from unity_bridge.errors import BridgeError
from unity_bridge.grpc_direct import DirectServer, usable
from unity_bridge.grpc_threads import ThreadedServer

PATIENCE_S = 60.0


@pytest.fixture
def inbox() -> SimpleQueue[Any]:
    return SimpleQueue()


@pytest.fixture(params=[DirectServer, ThreadedServer])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param is DirectServer and not usable():
        pytest.skip("the installed grpcio has another core interface than DirectServer stands on")
    return request.param


@pytest.fixture
def endpoint(inbox: SimpleQueue[Any], server: Server) -> Iterator[Endpoint]:
    opened = Endpoint("127.0.0.1", 0, inbox, capacity=2, server=server)
    yield opened
    opened.stop()


def parked(inbox: SimpleQueue[Any]) -> Call:
    call = inbox.get(timeout=PATIENCE_S)
    assert isinstance(call, Call)
    return call


def test_bytes_pass_as_they_are_both_ways(endpoint: Endpoint, inbox: SimpleQueue[Any], connect: Any) -> None:
    sent = connect(endpoint.port).raw_call(b"\x00not a message\xff")
    call = parked(inbox)
    assert call.data == b"\x00not a message\xff"
    call.answer(b"\xffno answer either")
    assert sent.result(PATIENCE_S) == b"\xffno answer either"


def test_a_refusal_arrives_with_its_text(endpoint: Endpoint, inbox: SimpleQueue[Any], connect: Any) -> None:
    sent = connect(endpoint.port).raw_call(b"")
    parked(inbox).refuse("agent 3: expected 8 floats, got 7 — §1.9")
    assert sent.exception(PATIENCE_S).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sent.details() == "agent 3: expected 8 floats, got 7 — §1.9"


def test_a_refusal_of_any_length_arrives(endpoint: Endpoint, inbox: SimpleQueue[Any], connect: Any) -> None:
    sent = connect(endpoint.port).raw_call(b"")
    parked(inbox).refuse("🎱" * 100_000)
    assert sent.exception(PATIENCE_S).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert set(sent.details()) == {"🎱"}


def test_a_client_that_is_gone_is_news_only_while_its_call_is_open(
    endpoint: Endpoint, inbox: SimpleQueue[Any], connect: Any
) -> None:
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
    endpoint: Endpoint, inbox: SimpleQueue[Any], connect: Any
) -> None:
    client = connect(endpoint.port)
    first, second = client.raw_call(b"1"), client.raw_call(b"2")
    calls = [parked(inbox), parked(inbox)]
    surplus = client.raw_call(b"3")
    assert surplus.exception(PATIENCE_S).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for call in calls:
        call.answer(call.data)
    assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == (b"1", b"2")


def test_stopping_lets_parked_calls_go(
    inbox: SimpleQueue[Any], server: Server, connect: Callable[[int], Any]
) -> None:
    endpoint = Endpoint("127.0.0.1", 0, inbox, capacity=2, server=server)
    sent = connect(endpoint.port).raw_call(b"")
    parked(inbox)
    endpoint.stop()
    assert isinstance(sent.exception(PATIENCE_S), grpc.RpcError)


def test_clients_of_one_machine_are_told_apart(
    endpoint: Endpoint, inbox: SimpleQueue[Any], connect: Any
) -> None:
    sent = [connect(endpoint.port).raw_call(b"") for _ in range(2)]
    first, second = parked(inbox), parked(inbox)
    assert first.peer != second.peer
    for call in (first, second):
        call.answer(call.peer.encode())
    assert {each.result(PATIENCE_S).decode() for each in sent} == {first.peer, second.peer}


def test_an_ipv6_address_is_written_with_brackets(inbox: SimpleQueue[Any], server: Server) -> None:
    try:
        endpoint = Endpoint("::1", 0, inbox, capacity=1, server=server)
    except BridgeError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert endpoint.address == f"[::1]:{endpoint.port}"
    endpoint.stop()


def test_other_methods_are_unimplemented(endpoint: Endpoint) -> None:
    with grpc.insecure_channel(endpoint.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/communicator_objects.UnityToExternalProto/Initialize")(b"", timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_an_address_of_another_machine_cannot_be_bound(inbox: SimpleQueue[Any], server: Server) -> None:
    with pytest.raises(BridgeError, match="cannot listen"):
        Endpoint("192.0.2.1", 0, inbox, capacity=1, server=server)
