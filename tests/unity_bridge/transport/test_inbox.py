"""The clock that stands still while nobody reads, and the limits that are measured by it."""

from __future__ import annotations

from queue import Empty

import pytest

from unity_bridge.transport.inbox import LONGEST_GAP_S, Inbox, ReadingClock, can_serve_directly


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture(params=[True, False], ids=["direct", "threads"])
def inbox(hand: Hand, request: pytest.FixtureRequest) -> Inbox:
    """An inbox by that clock."""
    if request.param and not can_serve_directly():
        pytest.skip("the installed grpcio has another core interface")
    return Inbox(direct=request.param, clock=hand)


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


def test_what_has_come_is_read_before_anybody_is_judged(hand: Hand, inbox: Inbox) -> None:
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


def test_a_watcher_that_fails_is_told_once_and_ends_nothing(
    hand: Hand, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    watched: list[float] = []

    def fails(now: float) -> None:
        raise OverflowError("date value out of range")

    inbox.watch(fails)
    inbox.watch(watched.append)
    read_for(inbox, hand, 10.0)
    assert len(watched) > 5
    (said,) = caplog.messages
    assert said.startswith("A task beside the simulators failed: OverflowError: date value out of range")
