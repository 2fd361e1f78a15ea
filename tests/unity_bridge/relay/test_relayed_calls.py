"""The trainer's side of a relay: exchanges that are sent again, out of order, or by nobody that it knows."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any

import pytest
from bridge_replies import actions_in

from unity_bridge.transport.relayed_calls import UNKNOWN_SESSION, exchange_metadata
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
        metadata = exchange_metadata(SESSION, number, report)
        data = message.SerializeToString()
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
    lost = relayed.client._channel.unary_unary("/communicator_objects.UnityToExternalProto/Exchange").future(
        data, metadata=metadata
    )
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


def test_an_exchange_of_an_unknown_conversation_is_refused_as_such(relayed: Relayed) -> None:
    assert refusal_of(relayed, relayed.send(7, relayed.messages.step())) == UNKNOWN_SESSION
    assert relayed.bridge.simulators == {}


def test_an_exchange_of_a_conversation_that_is_over_is_refused_as_unknown(relayed: Relayed) -> None:
    relayed.introduce()
    relayed.send(3, relayed.messages.goodbye())
    relayed.bridge.next_departure()
    assert refusal_of(relayed, relayed.send(4, relayed.messages.step())) == UNKNOWN_SESSION


def test_an_exchange_out_of_order_is_refused_and_costs_the_conversation_nothing(relayed: Relayed) -> None:
    relayed.introduce()
    for number in (1, 5):
        call = relayed.send(number, relayed.messages.step())
        assert refusal_of(relayed, call) == f"exchange {number}: expected 3, or 2 once more"
    relayed.send(3, relayed.messages.first_step())
    assert relayed.bridge.next_tick().simulator == 0


def test_a_report_is_logged_as_harmless_text(relayed: Relayed, caplog: pytest.LogCaptureFixture) -> None:
    relayed.introduce()
    with caplog.at_level(logging.WARNING):
        relayed.send(
            3, relayed.messages.goodbye(), "exited with code 3:\n  out of petrol é\n[INFO] forged\x1b[2J"
        )
        relayed.bridge.next_departure()
    assert "Relay: exited with code 3:\n  out of petrol é\n  [INFO] forged\\x1b[2J" in caplog.messages


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


def test_both_servers_read_the_numbers(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge()
    bridge._inbox.serves_directly = False
    relayed = Relayed(bridge, connect, messages)
    assert refusal_of(relayed, relayed.send(7, messages.step())) == UNKNOWN_SESSION
