"""Relays between simulators and a trainer that the test plays: lost lines, lost trainers, lost simulators."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bridge_replies import BALL, actions_in, pid_of
from network_lines import Proxy

from unity_bridge.errors import LaunchError
from unity_bridge.programs.executables import Command
from unity_bridge.relay import relay as relay_module
from unity_bridge.relay.conversation import TrainerLost
from unity_bridge.remote.access import RemoteAccess
from unity_bridge.remote.dialing import TrainerConnection
from unity_bridge.remote.private_files import FOLDER_VARIABLE
from unity_bridge.wire.command_pb2 import CommandProto

LONG_S = 60.0


def test_a_simulator_that_attaches_to_a_relay_is_served_by_the_trainer(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    relay = make_relay(bridge.listen(port=0))
    simulator = connect(relay.port)
    reply = simulator.later(simulator.start, messages.first_step([(1, 2, 3), (4, 5, 6)]))
    tick = bridge.next_tick()
    assert tick.steps[BALL].observations[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    bridge.act(tick, 0.25)
    assert actions_in(reply.result(LONG_S)) == [[0.25, 0.25], [0.25, 0.25]]


def count_up(simulator: Any, messages: Any, steps: int) -> list[float]:
    """Plays so many steps, each of which shows its number. Returns the first action of each reply."""
    got = [actions_in(simulator.start(messages.first_step([(0, 0, 0)])))[0][0]]
    for number in range(1, steps):
        got.append(actions_in(simulator.exchange(messages.step([(number, 0, 0)])))[0][0])
    return got


def test_a_line_that_breaks_at_any_moment_loses_and_repeats_no_exchange(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any
) -> None:
    steps, dice = 100, random.Random(5)
    bridge = make_bridge()
    with Proxy(bridge.listen(port=0)) as line:
        simulator = connect(make_relay(line.port).port)
        played = simulator.later(count_up, simulator, messages, steps)
        shown = []
        while len(shown) < steps:
            tick = bridge.next_tick()
            shown.append(int(tick.steps[BALL].observations[0][0, 0]))
            if dice.random() < 0.05:
                line.break_lines()
                if dice.random() < 0.5:
                    bridge.receive(dice.uniform(0.0, 0.3))
            bridge.act(tick, shown[-1])
            if dice.random() < 0.05:
                line.break_lines()
        while not played.done():
            assert bridge.receive(0.02) == []
    assert shown == list(range(steps))
    assert played.result() == shown


def kill(bridge: Any) -> None:
    """Frees the ports of a bridge, which says nothing to its simulators, as a process that is killed."""
    bridge._listeners.stop()


@pytest.mark.parametrize("owes", ["trainer", "simulator"])
def test_a_trainer_that_starts_again_gets_the_simulator_introduced_anew(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any, owes: str
) -> None:
    bridge = make_bridge()
    port = bridge.listen(port=0)
    simulator = connect(make_relay(port).port)
    reply = bridge.begin(simulator)
    reply.result(LONG_S)
    if owes == "trainer":
        reply = simulator.later(simulator.exchange, messages.step())
        bridge.next_tick()
    kill(bridge)
    successor = make_bridge()
    successor.listen(port=port)
    if owes == "simulator":
        reply = simulator.later(simulator.exchange, messages.step())
    reset = successor.answered(reply)
    assert reset.header.status == 200
    assert reset.unity_input.rl_input.command == CommandProto.RESET
    reply = simulator.later(simulator.exchange, messages.step([(7, 8, 9)]))
    tick = successor.next_tick()
    assert list(tick.new_specs) == [BALL]
    assert tick.steps[BALL].observations[0].tolist() == [[7, 8, 9]]
    successor.act(tick, 0.5)
    assert actions_in(reply.result(LONG_S)) == [[0.5, 0.5]]


def test_a_trainer_that_stays_away_ends_the_relay(
    make_relay: Any, connect: Any, messages: Any, free_port: int
) -> None:
    relay = make_relay(free_port, timeout_wait_s=0.2)
    simulator = connect(relay.port)
    call = simulator.later(simulator.exchange, messages.introduction())
    error = relay.end()
    assert isinstance(error, TrainerLost)
    assert f"the trainer at 127.0.0.1:{free_port} was not reached within 0.2 s (timeout_wait)" in str(error)
    assert simulator.refusal(call) == str(error)


def test_a_simulator_that_is_gone_is_reported(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = make_bridge()
    relay = make_relay(bridge.listen(port=0))
    simulator = connect(relay.port)
    simulator.later(simulator.start, messages.first_step())
    tick = bridge.next_tick()
    simulator.close()
    assert bridge.next_departure().simulator == tick.simulator
    assert re.search(r"Relay: simulator 0 \(\S+\): closed its connection while it waited", caplog.text)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="other systems tell nothing of connections")
def test_visitors_that_left_hold_neither_threads_nor_conversations(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=3600.0)
    relay = make_relay(bridge.listen(port=0), timeout_wait_s=3600.0)
    before, visitors = threading.active_count(), [connect(relay.port) for _ in range(8)]
    for each in visitors:
        bridge.answered(each.later(each.exchange, messages.introduction()))
    assert len(relay.relay._simulators) == len(bridge.simulators) == 8
    for each in visitors:
        each.close()
    while bridge.simulators or relay.relay._simulators or relay.relay._leaving:
        bridge.receive(0.02)
    while threading.active_count() > before + 2:  # as many as gRPC keeps for a while
        bridge.receive(0.02)


def test_a_relay_has_a_limit_of_simulators_at_its_port(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "MOST_ATTACHED", 2)
    bridge = make_bridge()
    relay = make_relay(bridge.listen(port=0))
    visitors = [connect(relay.port) for _ in range(3)]
    for each in visitors[:2]:
        bridge.answered(each.later(each.exchange, messages.introduction()))
    refused = visitors[2].later(visitors[2].exchange, messages.introduction())
    assert visitors[2].refusal(refused) == "expected at most 2 simulators at this port, got another"
    assert len(bridge.simulators) == 2
    visitors[0].later(visitors[0].exchange, messages.goodbye())
    bridge.next_departure()
    while len(relay.relay._simulators) == 2:
        bridge.receive(0.02)
    bridge.answered(visitors[2].later(visitors[2].exchange, messages.introduction()))


def test_a_silent_simulator_is_timed_out(
    make_bridge: Any, make_relay: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge()
    simulator = connect(make_relay(bridge.listen(port=0), timeout_wait_s=1.0).port)
    bridge.begin(simulator)
    assert "stopped by itself" in bridge.next_departure().reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"token": "x" * 24}, "answered UNAUTHENTICATED"), ({"fingerprint": bytes(32)}, "no token was sent")],
)
def test_a_code_of_another_trainer_ends_the_relay(
    make_bridge: Any,
    make_relay: Any,
    connect: Any,
    messages: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    message: str,
) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "user"))
    bridge, access = make_bridge(), RemoteAccess.open()
    address, code = f"127.0.0.1:{bridge.listen('127.0.0.1', 0, access)}", access.join_code()
    assert code is not None
    code = replace(code, addresses=(address,), **changes)
    relay = make_relay(lambda: TrainerConnection(code))
    simulator = connect(relay.port)
    call = simulator.later(simulator.exchange, messages.introduction())
    while relay._thread.is_alive():
        assert bridge.receive(0.02) == []
    assert message in str(relay.error)
    assert simulator.refusal(call) == str(relay.error)
    assert bridge.simulators == {}


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="scripts are programs, and signals have names")
class TestLaunched:
    """Programs that the relay starts."""

    def test_one_that_is_killed_is_started_again_and_its_last_words_reach_the_trainer(
        self,
        make_bridge: Any,
        make_relay: Any,
        simulator_program: Callable[[str], Command],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        bridge = make_bridge()
        program = simulator_program("print introduce confirm first forever")
        make_relay(bridge.listen(port=0), program)
        tick = bridge.next_tick()
        bridge.act(tick)
        tick = bridge.next_tick()
        os.kill(pid_of(tick), signal.SIGKILL)
        bridge.next_departure()
        restarted = bridge.next_tick()
        assert pid_of(restarted) != pid_of(tick)
        assert "was killed by SIGKILL; starting it again; its last lines" in caplog.text
        assert "  the ball is lost" in caplog.text

    def test_one_that_fails_before_its_first_step_ends_the_relay(
        self, make_bridge: Any, make_relay: Any, simulator_program: Callable[[str], Command]
    ) -> None:
        bridge = make_bridge()
        relay = make_relay(bridge.listen(port=0), simulator_program("introduce print exit"))
        while relay._thread.is_alive():
            bridge.receive(0.05)
        assert isinstance(relay.error, LaunchError)
        assert "exited with code 3, before its first step" in str(relay.error)
