"""The clock that stands still while nobody reads, and the limits that are measured by it."""

from __future__ import annotations

from queue import Empty

import pytest

from unity_bridge.transport import limits
from unity_bridge.transport.direct_server import DirectServer, _Rpc
from unity_bridge.transport.inbox import LONGEST_GAP_S, Inbox, ReadingClock, can_serve_directly
from unity_bridge.transport.limits import SILENT_CALL_S
from unity_bridge.transport.threaded_server import _SilentCalls


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def hand() -> Hand:
    return Hand()


def read_for(inbox: Inbox, hand: Hand, seconds: float) -> None:
    """Reads the inbox, in which nothing is, for so long by the clock of the test."""
    for _ in range(round(seconds / 0.5)):
        hand.at += 0.5
        with pytest.raises(Empty):
            inbox.get(timeout=0.0)


def test_absence_does_not_count(hand: Hand) -> None:
    clock = ReadingClock(hand)
    began = clock.read()
    hand.at += 32.0
    assert clock.now() == began
    assert clock.read() == began
    hand.at += LONGEST_GAP_S / 2
    assert clock.now() == clock.read() == began + LONGEST_GAP_S / 2


def test_work_between_messages_counts(hand: Hand) -> None:
    clock = ReadingClock(hand)
    began = clock.read()
    for _ in range(100):
        hand.at += LONGEST_GAP_S
        clock.read()
    assert clock.now() == began + 100 * LONGEST_GAP_S


def test_a_call_of_a_thread_ends_after_its_time_of_reading(hand: Hand) -> None:
    inbox = Inbox(direct=False, clock=hand)
    ended: list[object] = []

    class Context:
        def cancel(self) -> None:
            ended.append(self)

    silent = _SilentCalls(inbox.clock)
    inbox.watch(silent.end_old)
    context = Context()
    silent.enter(context)  # type: ignore[arg-type]
    hand.at += 2 * SILENT_CALL_S
    read_for(inbox, hand, SILENT_CALL_S - 2.0)
    assert ended == []
    read_for(inbox, hand, 4.0)
    assert ended == [context]


@pytest.mark.skipif(not can_serve_directly(), reason="the installed grpcio has another core interface")
def test_a_call_of_the_core_ends_after_its_time_of_reading(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(direct=True, clock=hand)
    server = object.__new__(DirectServer)
    server._inbox, server._silent = inbox, {}
    ended: list[str] = []
    monkeypatch.setattr(_Rpc, "expire", lambda call, why: (ended.append(why), server._silent.clear()))

    class Core:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:9"

    server._silent[_Rpc(server, Core())] = None
    inbox.watch(server._end_silent_calls)
    hand.at += 2 * SILENT_CALL_S
    read_for(inbox, hand, SILENT_CALL_S - 2.0)
    assert ended == []
    read_for(inbox, hand, 4.0)
    assert ended == [f"it brought no message within {limits.SILENT_CALL_S:g} s"]


@pytest.mark.parametrize("direct", [True, False])
def test_what_has_come_is_read_before_anybody_is_judged(hand: Hand, direct: bool) -> None:
    if direct and not can_serve_directly():
        pytest.skip("the installed grpcio has another core interface")
    inbox = Inbox(direct=direct, clock=hand)
    happened: list[object] = []
    inbox.watch(lambda now: happened.append("judged"))
    for number in range(3):
        inbox.put(number)
    hand.at += 3.0
    for _ in range(3):
        happened.append(inbox.get(timeout=0.0))
    read_for(inbox, hand, 2.0)
    assert happened[:4] == [0, 1, 2, "judged"]


def test_a_stream_without_an_end_keeps_nobody_from_being_judged(hand: Hand) -> None:
    inbox = Inbox(direct=False, clock=hand)
    judged: list[float] = []
    inbox.watch(judged.append)
    for _ in range(20):
        inbox.put("more")
        hand.at += 0.5
        inbox.get(timeout=0.0)
    assert judged


@pytest.mark.parametrize("direct", [True, False])
def test_a_watcher_that_fails_is_told_once_and_ends_nothing(
    hand: Hand, direct: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if direct and not can_serve_directly():
        pytest.skip("the installed grpcio has another core interface")
    inbox = Inbox(direct=direct, clock=hand)
    watched: list[float] = []

    def fails(now: float) -> None:
        raise OverflowError("date value out of range")

    inbox.watch(fails)
    inbox.watch(watched.append)
    read_for(inbox, hand, 10.0)
    assert len(watched) > 5
    (said,) = caplog.messages
    assert said.startswith("A task beside the simulators failed: OverflowError: date value out of range")
