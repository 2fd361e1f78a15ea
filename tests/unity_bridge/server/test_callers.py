"""Connections to a launched program's port: its own, and strangers'."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bridge_replies import BALL, pid_of

from unity_bridge.programs.executables import Command
from unity_bridge.programs.program import running_groups

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scripts are programs, and signals have names")

LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy

linux = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell whose it is")


@linux
def test_strangers_at_a_launched_port_are_refused(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    simulator_program: Callable[[str], Command],
    free_port: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bridge = make_bridge(base_port=free_port)
    bridge.launch(simulator_program("introduce confirm first forever"))
    tick = bridge.next_tick()  # and it waits, when the first stranger comes
    for message in (b"\xff\xff", messages.introduction().SerializeToString(), b""):
        stranger = connect(free_port)
        call = stranger.later(stranger.exchange_bytes, message)
        while not call.done():
            assert bridge.receive(0.02) == []
        assert "this port is for a program that the trainer started" in stranger.refusal(call)
    bridge.act(tick)
    assert pid_of(bridge.next_tick()) == pid_of(tick)
    assert "refused another process (127.0.0.1:" in caplog.text


def test_a_repeated_stranger_is_looked_up_once(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    idle_program: Command,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up = []
    monkeypatch.setattr("unity_bridge.server.callers.STRANGER_S", LONG_S)
    monkeypatch.setattr(
        "unity_bridge.transport.peers.belongs_to_process", lambda *asked: looked_up.append(asked)
    )
    bridge = make_bridge(base_port=free_port)
    bridge.launch(idle_program)
    stranger = connect(free_port)
    for _ in range(20):
        call = stranger.later(stranger.exchange_bytes, b"\xff\xff")
        while not call.done():
            assert bridge.receive(0.02) == []
    assert len(looked_up) == 1


@linux
def test_an_earlier_stranger_gives_way_to_the_program(
    make_bridge: Any,
    make_program: Callable[[str, str], Path],
    connect: Any,
    messages: Any,
    simulator_program: Callable[[str], Command],
    free_port: int,
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "gate")
    working = simulator_program("introduce confirm first forever")
    late = make_program(
        "late.py",
        f"import os, sys\nopen({str(tmp_path / 'gate')!r}).read()\n"
        f"os.execv({working.executable[0]!r}, [{working.executable[0]!r}, *sys.argv[1:]])\n",
    )
    bridge = make_bridge(base_port=free_port, max_lifetime_restarts=0)
    bridge.launch(Command(env="late", executable=(str(late),), arguments=working.arguments))
    stranger = connect(free_port)
    call = stranger.later(stranger.start, messages.first_step())
    assert list(bridge.next_tick().steps) == [BALL]
    (tmp_path / "gate").write_text("go")
    events = bridge.next_events(1)
    events += bridge.next_events(2 - len(events))
    departure, tick = events
    assert departure.reason.endswith("another process used its place until now")
    assert "the program that the trainer started has connected" in stranger.refusal(call)
    assert running_groups() == [pid_of(tick)]


@linux
@pytest.mark.parametrize("again", ["introduce confirm first", ""])
def test_a_launched_program_may_open_another_connection(
    make_bridge: Any, simulator_program: Callable[[str], Command], again: str
) -> None:
    bridge = make_bridge(max_lifetime_restarts=0)
    bridge.launch(simulator_program(f"introduce confirm first reopen {again} forever"))
    tick = bridge.next_tick()
    bridge.act(tick)
    events = bridge.next_events(2 if again else 1)
    assert pid_of(events[-1]) == pid_of(tick)
    assert [event.reason for event in events[:-1]] == [
        f"simulator 0 (test, pid {pid_of(tick)}): introduced itself again"
    ][: len(again)]


def test_without_system_tables_the_first_introduction_takes_the_port(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    idle_program: Command,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unity_bridge.transport.peers.is_connected", lambda peer, port: None)
    bridge = make_bridge(base_port=free_port)
    bridge.launch(idle_program)
    stranger, simulator = connect(free_port), connect(free_port)

    def refused(client: Any, message: bytes) -> str:
        call = client.later(client.exchange_bytes, message)
        while not call.done():
            assert bridge.receive(0.02) == []
        return str(client.refusal(call))

    assert "its place is taken" in refused(stranger, b"\xff\xff")
    simulator.later(simulator.start, messages.first_step())
    tick = bridge.next_tick()
    assert "its place is taken" in refused(stranger, messages.introduction().SerializeToString())
    bridge.act(tick)
    simulator.later(simulator.exchange, messages.step())
    assert bridge.next_tick().simulator == tick.simulator
