"""The trainer's side of a relay: exchanges that are sent again, out of order, or by nobody that it knows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from bridge_replies import actions_in

from unity_bridge.transport import relayed_calls
from unity_bridge.transport.relayed_calls import UNKNOWN_SESSION, RelayedCall, RelayedCalls, exchange_metadata
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

LONG_S = 60.0
SESSION = "office-pc/0-0123456789abcdef"


class Relayed:
    """A simulator whose exchanges the test numbers."""

    def __init__(self, bridge: Any, connect: Any, messages: Any) -> None:
        self.bridge, self.connect, self.messages = bridge, connect, messages
        self.port = bridge.listen(port=0)
        self.client = connect(self.port)

    def send(self, number: int, message: UnityMessageProto, report: str = "") -> Future[bytes]:
        return self.send_bytes(SESSION, number, message.SerializeToString(), report)

    def send_bytes(self, session: str, number: int, data: bytes, report: str = "") -> Future[bytes]:
        metadata = exchange_metadata(session, number, report)
        return self.client.later(lambda: self.client.exchange_bytes(data, metadata=metadata, timeout=LONG_S))

    def reconnect(self) -> None:
        """Loses the line, whatever is on its way."""
        self.client.close()
        self.client = self.connect(self.port)

    def introduce(self) -> None:
        self.bridge.answered(self.send(1, self.messages.introduction()))
        self.bridge.answered(self.send(2, self.messages.confirmation()))


@pytest.fixture
def relayed(make_bridge: Any, connect: Any, messages: Any) -> Relayed:
    return Relayed(make_bridge(), connect, messages)


def test_an_exchange_that_is_sent_again_gets_the_same_reply_and_counts_once(relayed: Relayed) -> None:
    relayed.introduce()
    step = relayed.messages.first_step()
    first = relayed.send(3, step)
    relayed.bridge.act(relayed.bridge.next_tick(), 0.25)
    reply = first.result(LONG_S)
    relayed.reconnect()
    assert relayed.bridge.answered(relayed.send(3, step)) == reply
    assert actions_in(UnityMessageProto.FromString(reply)) == [[0.25, 0.25]]
    relayed.send(4, relayed.messages.step())
    assert relayed.bridge.next_tick().simulator == 0


def test_an_exchange_whose_line_broke_while_it_waited_is_answered_on_the_next_line(relayed: Relayed) -> None:
    relayed.introduce()
    step = relayed.messages.first_step()
    data, metadata = step.SerializeToString(), exchange_metadata(SESSION, 3)
    lost = relayed.client.raw_call(data, metadata=metadata)
    tick = relayed.bridge.next_tick()
    lost.cancel()
    relayed.reconnect()
    again = relayed.send(3, step)
    while not again.running():
        pass
    assert relayed.bridge.receive(0.2) == []  # neither a departure nor a second tick
    relayed.bridge.act(tick, 0.5)
    assert actions_in(UnityMessageProto.FromString(relayed.bridge.answered(again))) == [[0.5, 0.5]]


def refusal_of(relayed: Relayed, call: Future[bytes]) -> str:
    while not call.done():
        assert relayed.bridge.receive(0.02) == []
    return str(relayed.client.refusal(call))


def test_an_exchange_of_no_conversation_or_of_one_that_is_over_is_refused(relayed: Relayed) -> None:
    assert refusal_of(relayed, relayed.send(7, relayed.messages.step())) == UNKNOWN_SESSION
    assert relayed.bridge.simulators == {}
    relayed.introduce()
    relayed.send(3, relayed.messages.goodbye())
    relayed.bridge.next_departure()
    assert refusal_of(relayed, relayed.send(4, relayed.messages.step())) == UNKNOWN_SESSION


def test_the_end_of_a_conversation_is_told_again(relayed: Relayed) -> None:
    relayed.introduce()
    goodbye = relayed.send(3, relayed.messages.goodbye())
    relayed.bridge.next_departure()
    assert relayed.bridge.answered(relayed.send(3, relayed.messages.goodbye())) == goodbye.result(LONG_S)


@pytest.mark.parametrize("size", [10, 2000])
def test_a_long_reply_is_forgotten_with_its_conversation(size: int) -> None:
    heard: list[Any] = []
    calls = RelayedCalls(most=1)
    first, again = (RelayedCall(SimpleNamespace(port=0), SESSION, 1, b"", heard.append, "") for _ in range(2))
    assert calls.is_new(first)
    calls.keep(first)
    first.answer(bytes(size))
    calls.end(first.peer)
    assert not calls.is_new(again)
    assert heard[-1] == (bytes(size) if size < 1000 else UNKNOWN_SESSION)


def test_an_exchange_out_of_order_is_refused_and_costs_the_conversation_nothing(relayed: Relayed) -> None:
    relayed.introduce()
    for number in (1, 5):
        call = relayed.send(number, relayed.messages.step())
        assert refusal_of(relayed, call) == f"exchange {number}: expected 3, or 2 once more"
    relayed.send(3, relayed.messages.first_step())
    assert relayed.bridge.next_tick().simulator == 0


def test_an_exchange_is_still_known_after_another_was_refused_beside_it(relayed: Relayed) -> None:
    relayed.introduce()
    step = relayed.messages.first_step()
    lost = relayed.client.raw_call(step.SerializeToString(), metadata=exchange_metadata(SESSION, 3))
    tick = relayed.bridge.next_tick()
    assert "expected no other call before the last one is answered" in refusal_of(
        relayed, relayed.send(4, relayed.messages.step())
    )
    lost.cancel()
    relayed.reconnect()
    again = relayed.send(3, step)
    while not again.running():
        pass
    assert relayed.bridge.receive(0.2) == []
    relayed.bridge.act(tick, 0.5)
    assert actions_in(UnityMessageProto.FromString(relayed.bridge.answered(again))) == [[0.5, 0.5]]


def test_a_refused_introduction_leaves_nothing_behind(relayed: Relayed) -> None:
    bad = relayed.send(1, relayed.messages.introduction("9.0.0"))
    relayed.bridge.next_departure()
    assert "speaks" in str(relayed.client.refusal(bad))
    relayed.introduce()  # the same numbers in the same conversation
    relayed.send(3, relayed.messages.first_step())
    assert relayed.bridge.next_tick().simulator == 1


def others() -> Iterator[str]:
    """Names of further conversations."""
    return (f"office-pc/{number}-0123456789abcdef" for number in range(1, 1000))


def test_conversations_beyond_the_most_are_refused_until_one_ends(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_bridge.server.event_handler.most_connections", lambda capacity: 1)
    relayed = Relayed(make_bridge(), connect, messages)
    relayed.introduce()
    introduction = messages.introduction().SerializeToString()
    other = next(others())
    refusal = refusal_of(relayed, relayed.send_bytes(other, 1, introduction))
    assert refusal == "expected at most 1 relayed simulators at once, got another"
    relayed.send(3, messages.goodbye())
    relayed.bridge.next_departure()
    relayed.bridge.answered(relayed.send_bytes(other, 1, introduction))


def test_beyond_the_limit_of_all_replies_the_largest_is_forgotten(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed.introduce()
    first_step = relayed.messages.first_step([(1.0, 2.0, 3.0)] * 300)
    first = relayed.send(3, first_step)
    relayed.bridge.act(relayed.bridge.next_tick(), 0.25)
    assert len(first.result(LONG_S)) > 2000
    monkeypatch.setattr(relayed_calls, "_MOST_KEPT", 2000)
    other = next(others())
    introduction = relayed.messages.introduction().SerializeToString()
    relayed.bridge.answered(relayed.send_bytes(other, 1, introduction))
    assert refusal_of(relayed, relayed.send(3, first_step)) == UNKNOWN_SESSION
    relayed.send(4, relayed.messages.step())  # had the reply come, the conversation would go on
    assert relayed.bridge.next_tick().simulator == 0


LARGE = 40 * 2**20


def grown_by(relayed: Relayed, sent: Iterator[tuple[str, int]]) -> int:
    """Bytes of memory that this process has more after a large message for each of these exchanges was refused."""
    process, data = psutil.Process(), bytes(LARGE)
    before = process.memory_info().rss
    for session, number in sent:
        call = relayed.send_bytes(session, number, data)
        while not call.done():
            relayed.bridge.receive(0.02)
        assert relayed.client.refusal(call)
    relayed.reconnect()
    relayed.bridge.receive(0.1)
    return int(process.memory_info().rss - before)


@pytest.mark.thorough
def test_a_gigabyte_of_new_conversations_leaves_nothing_behind(relayed: Relayed) -> None:
    sessions = zip(others(), [1] * 25, strict=False)
    assert grown_by(relayed, sessions) < 8 * LARGE  # those in gRPC's hands, and free memory


def test_large_messages_beside_a_waiting_exchange_leave_nothing_behind(relayed: Relayed) -> None:
    names = [name for name, _ in zip(others(), range(12), strict=False)]
    messages = [relayed.messages.introduction(), relayed.messages.confirmation()]
    step = relayed.messages.first_step().SerializeToString()
    waiting = []
    for session in names:
        for number, message in enumerate(messages, start=1):
            relayed.bridge.answered(relayed.send_bytes(session, number, message.SerializeToString()))
        waiting.append(relayed.client.raw_call(step, metadata=exchange_metadata(session, 3)))
        relayed.bridge.next_tick()  # never answered
    assert grown_by(relayed, zip(names, [4] * 12, strict=True)) < 8 * LARGE


def test_a_report_is_logged_as_harmless_text(relayed: Relayed, caplog: pytest.LogCaptureFixture) -> None:
    relayed.introduce()
    with caplog.at_level(logging.WARNING):
        relayed.send(
            3, relayed.messages.goodbye(), "exited with code 3:\n  out of petrol é\n[INFO] forged\x1b[2J"
        )
        relayed.bridge.next_departure()
    assert "Relay: exited with code 3:\n  out of petrol é\n  [INFO] forged\\x1b[2J" in caplog.messages


def test_the_secret_of_a_conversation_is_in_no_name(
    relayed: Relayed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    relayed.introduce()
    relayed.send(3, relayed.messages.first_step())
    relayed.bridge.act(relayed.bridge.next_tick())
    relayed.send(4, relayed.messages.goodbye())
    assert relayed.bridge.next_departure().reason.startswith("simulator 0 (office-pc/0): ")
    assert "0123456789abcdef" not in caplog.text


@pytest.mark.parametrize(
    "metadata",
    [
        (("x-relay-session", "no such form"), ("x-relay-exchange", "1")),
        (("x-relay-session", SESSION), ("x-relay-exchange", "-1")),
        (("x-relay-session", SESSION),),
    ],
)
def test_metadata_that_are_not_valid_make_an_ordinary_simulator(relayed: Relayed, metadata: Any) -> None:
    data = relayed.messages.introduction().SerializeToString()
    client = relayed.client
    relayed.bridge.answered(
        client.later(lambda: client.exchange_bytes(data, metadata=metadata, timeout=LONG_S))
    )
    client.close()
    relayed.client = relayed.connect(relayed.port)
    assert len(relayed.bridge.simulators) == 1
