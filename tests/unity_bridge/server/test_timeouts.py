"""Simulators that are late, hang or disappear while they owe a message."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from bridge_replies import BALL

from unity_bridge.server.origins import Attached
from unity_bridge.server.timeouts import LOG_WAIT_AFTER_S
from unity_bridge.throttled_logger import MAX_LOGGED

LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy


def test_a_timeout_names_the_message_owed(make_bridge: Any, connect: Any, messages: Any) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    reason = bridge.next_departure().reason
    assert reason.endswith("silent for 1 s (timeout_wait); it owes its next step, after our reply")
    late = simulator.later(simulator.exchange, messages.step())
    assert bridge.answered(late).header.status == 400


def test_what_waited_during_a_long_update_is_not_silent(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    call = simulator.raw_call(messages.step().SerializeToString())
    with pytest.raises(grpc.FutureTimeoutError):
        call.result(timeout=1.5 * SHORT_S)  # the trainer learns, and does not look
    assert list(bridge.next_tick().steps) == [BALL]


def test_a_killed_editor_may_return_before_its_timeout(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "unity_bridge.transport.peers.read_sockets", list
    )  # as on a system that tells nothing
    bridge = make_bridge(timeout_wait_s=2 * SHORT_S)
    port = bridge.listen(port=0)
    killed = connect(port)
    killed.later(killed.start, messages.first_step())
    bridge.act(bridge.next_tick())
    killed.close()
    again = connect(port)
    reply = again.later(again.start, messages.first_step())
    tick = bridge.next_tick()
    assert tick.simulator == 1
    departure = bridge.next_departure()
    assert (departure.simulator, "it owes its next step" in departure.reason) == (0, True)
    bridge.act(tick)
    assert reply.result(LONG_S).header.status == 200


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell")
def test_a_death_is_noticed_long_before_the_timeout(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_bridge.server.timeouts.CHECK_INTERVAL_S", 0.02)
    bridge = make_bridge(timeout_wait_s=1000 * LONG_S)
    port = bridge.listen(port=0)
    killed, slow = connect(port), connect(port)
    for simulator in (slow, killed):
        first = simulator.later(simulator.start, messages.first_step())
        bridge.act(bridge.next_tick())
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
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
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


def test_a_simulator_has_its_time_after_the_trainer_was_away(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = make_bridge(timeout_wait_s=LONG_S)
    simulator = connect(bridge.listen(port=0))
    simulator.later(simulator.start, messages.first_step())
    bridge.act(bridge.next_tick())
    clock = bridge._inbox.clock
    monkeypatch.setattr(
        clock, "_clock", lambda: time.monotonic() + 2 * LONG_S
    )  # an update, or a stopped process
    bridge.receive(0.01)  # a message of megabytes would still be on its way
    simulator.later(simulator.exchange, messages.step())
    assert list(bridge.next_tick().steps) == [BALL]


def test_a_port_waits_for_its_first_simulator_after_the_trainer_was_away(
    make_bridge: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = make_bridge(timeout_wait_s=LONG_S)
    simulator = connect(bridge.listen(port=0))
    monkeypatch.setattr(bridge._inbox.clock, "_clock", lambda: time.monotonic() + 2 * LONG_S)
    bridge.receive(0.01)
    simulator.later(simulator.start, messages.first_step())
    assert list(bridge.next_tick().steps) == [BALL]


def test_many_that_are_waited_for_share_a_few_lines(
    make_bridge: Any,
    messages: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bridge = make_bridge()
    bridge.listen(port=0)
    for number in range(2 * MAX_LOGGED):
        bridge._connections.open(number, Attached(f"ipv4:127.0.0.1:{number + 1}")).session.receive(
            messages.introduction().SerializeToString()
        )
        if number == 5:
            list(bridge._timeouts.lost(bridge._inbox.clock.now() + LOG_WAIT_AFTER_S))
    for late in range(1, 3 * MAX_LOGGED):
        simulator = next(iter(bridge._connections))
        simulator.is_wait_logged = False
        list(bridge._timeouts.lost(bridge._inbox.clock.now() + LOG_WAIT_AFTER_S + 2 * late))
    lines = [line for line in caplog.messages if line.startswith("waiting for")]
    assert (
        "waiting for simulator 0 (127.0.0.1:1) and 5 others for 5 s: it owes the second message" in lines[0]
    )
    assert "simulator 0 (127.0.0.1:1) and 14 others for 7 s" in lines[1]
    assert len(lines) == MAX_LOGGED
    assert lines[-1].endswith("(said 10 times; from now on only counted)")
