"""Simulators that are late, hang or disappear while they owe a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from bridge_replies import BALL

from unity_bridge.server.timeouts import BUSY_GRACE_S, Timeouts
from unity_bridge.transport.inbox import Inbox

LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy


def test_a_timeout_names_the_message_owed(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    reason = bridge.next_departure().reason
    assert reason.endswith("silent for 1 s (timeout_wait); it owes its next step, after our reply")
    late = simulator.later(simulator.exchange, messages.step())
    assert bridge.answered(late).header.status == 400


def test_a_read_inbox_is_drained_and_one_that_fills_again_after_a_while() -> None:
    inbox, nothing = Inbox(), cast(Any, ())
    timeouts = Timeouts(SHORT_S, inbox, nothing, nothing)
    assert timeouts.is_inbox_drained(10.0)
    inbox.put("a message")
    assert not timeouts.is_inbox_drained(11.0)
    timeouts.read_until = 12.0
    timeouts.resume(20.0)  # what was done instead of reading does not count
    assert not timeouts.is_inbox_drained(19.0 + BUSY_GRACE_S - 0.1)
    assert timeouts.is_inbox_drained(19.0 + BUSY_GRACE_S)
    assert inbox.get(0.0) == "a message"
    assert timeouts.is_inbox_drained(19.0)


def test_what_waited_during_a_long_update_is_not_silent(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    call = simulator.raw_call(messages.step().SerializeToString())
    with pytest.raises(grpc.FutureTimeoutError):
        call.result(timeout=1.5 * SHORT_S)  # the trainer learns, and does not look
    assert list(bridge.next_tick().steps) == [BALL]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell")
def test_a_death_is_noticed_long_before_the_timeout(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_bridge.server.timeouts.CHECK_INTERVAL_S", 0.02)
    bridge = make_bridge(timeout_wait_s=1000 * LONG_S)
    port = bridge.listen(port=0)
    killed, slow = connect(port), connect(port)
    for simulator in (slow, killed):
        first = bridge.begin(simulator)
        first.result(LONG_S)
    killed.close()
    departure = bridge.next_departure()
    assert departure.simulator == 1
    assert departure.reason.endswith("closed its connection; it owed its next step, after our reply")
    slow.later(slow.exchange, messages.step())  # whose connection stands
    assert bridge.next_tick().simulator == 0


def test_a_long_wait_is_logged_once(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("CHECK_INTERVAL_S", "LOG_WAIT_AFTER_S"):
        monkeypatch.setattr(f"unity_bridge.server.timeouts.{name}", 0.0)
    bridge = make_bridge()
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    caplog.clear()
    for _ in range(5):
        bridge.receive(0.01)
    assert [line for line in caplog.messages if line.startswith("waiting for simulator 0 (127")] == [
        *caplog.messages
    ]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("s: it owes its next step, after our reply")
    simulator.later(simulator.exchange, messages.step())
    bridge.next_tick()
