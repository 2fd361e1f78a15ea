"""Messages that may be large: received one at a time, whoever sends them."""

from __future__ import annotations

from queue import Empty
from typing import Any

import pytest

from unity_bridge.transport import limits
from unity_bridge.transport.endpoint import Endpoint
from unity_bridge.transport.inbox import Inbox, ReadingClock
from unity_bridge.transport.limits import (
    LARGE_MESSAGE,
    LONGEST_S,
    MOST_OVERDUE,
    TURN_S,
    MessageTurns,
    Turn,
)

PATIENCE_S = 60.0
SMALL, LARGE = 100, LARGE_MESSAGE + 1


class Desk:
    """Turns whose clock is set by hand, and what they did."""

    def __init__(self) -> None:
        self.at = 0.0
        self.turns = MessageTurns(ReadingClock(lambda: self.at))
        self.begun: list[str] = []
        self.ended: list[str] = []

    def request(self, peer: str) -> Turn:
        turn = Turn(peer, lambda: self.begun.append(peer), lambda why: self.ended.append(peer))
        self.turns.request(turn)
        return turn

    def greet(self, *peers: str) -> None:
        """Lets peers send the two messages of the handshake."""
        for peer in peers:
            for _ in range(2):
                self.turns.note_message(self.request(peer), SMALL)
        self.begun.clear()


def test_first_steps_come_one_after_another() -> None:
    desk = Desk()
    desk.greet("a", "b")
    first = desk.request("a")
    desk.request("b")
    assert desk.begun == ["a"]
    assert not desk.turns.note_message(first, SMALL)
    assert desk.begun == ["a", "b"]


def test_small_messages_wait_for_nobody() -> None:
    desk = Desk()
    desk.greet("a", "b")
    desk.turns.note_message(desk.request("b"), SMALL)
    assert desk.turns.note_message(desk.request("a"), LARGE)
    desk.begun.clear()
    for _ in range(3):
        desk.turns.note_message(desk.request("b"), SMALL)
    desk.request("newcomer")
    assert desk.begun == ["b", "b", "b", "newcomer"]


def test_a_large_message_keeps_its_turn_until_it_is_read() -> None:
    desk = Desk()
    desk.greet("a", "b")
    large = desk.request("a")
    desk.request("b")
    assert desk.turns.note_message(large, LARGE)
    assert desk.begun == ["a"]
    desk.turns.end(large)
    assert desk.begun == ["a", "b"]
    desk.request("a")  # it sent a large one before
    assert desk.begun == ["a", "b"]


def test_a_message_that_does_not_come_passes_its_turn_on() -> None:
    desk = Desk()
    peers = [f"{number}" for number in range(MOST_OVERDUE + 3)]
    desk.greet(*peers)
    for peer in peers:
        desk.request(peer)
    for _ in peers:
        desk.turns.pass_on(desk.at)  # too early
        desk.at += TURN_S
        desk.turns.pass_on(desk.at)
    assert desk.begun == peers[: MOST_OVERDUE + 1], "a slow link has its time, and the others wait"
    assert desk.ended == []
    while desk.begun != peers:
        desk.at += LONGEST_S
        desk.turns.pass_on(desk.at)
    assert desk.ended == peers[: len(peers) - MOST_OVERDUE - 1]


def test_a_call_that_is_over_waits_no_longer() -> None:
    desk = Desk()
    desk.greet("a", "b", "c")
    first, second = desk.request("a"), desk.request("b")
    desk.request("c")
    desk.turns.end(second)
    desk.turns.end(first)
    assert desk.begun == ["a", "c"]


def test_one_large_message_is_in_memory_at_a_time(
    endpoint: Endpoint, inbox: Inbox, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGE_MESSAGE", 1000)
    clients = [connect(endpoint.port) for _ in range(3)]
    for client in clients:
        for _ in range(2):
            sent = client.raw_call(b"a handshake")
            inbox.get(timeout=PATIENCE_S).answer(b"")
            sent.result(PATIENCE_S)
    calls = [client.raw_call(bytes(2000)) for client in clients]
    for _ in clients:
        call = inbox.get(timeout=PATIENCE_S)
        assert len(call.data) == 2000
        assert inbox.empty()
        call.answer(b"")
    with pytest.raises(Empty):
        inbox.get(timeout=0.0)
    for each in calls:
        each.result(PATIENCE_S)
