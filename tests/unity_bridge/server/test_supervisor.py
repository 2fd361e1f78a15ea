"""Launched programs: their starts and ends, their restarts, and the texts about them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bridge_replies import BALL, pid_of

from unity_bridge.errors import DeclarationError, LaunchError, PortInUse, SimulatorLost
from unity_bridge.programs.executables import Command

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scripts are programs, and signals have names")

LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy


def test_launched_simulators_get_ports_seeds_and_logs(
    make_bridge: Any, simulator_program: Callable[[str], Command], tmp_path: Path
) -> None:
    bridge = make_bridge()
    assert bridge.launch(simulator_program("print introduce confirm first forever"), 2) == [0, 1]
    ticks = bridge.next_events(2)
    assert {tick.simulator for tick in ticks} == {0, 1}
    for tick in ticks:
        bridge.act(tick)
    assert {tick.simulator for tick in bridge.next_events(2)} == {0, 1}
    for number in (0, 1):
        assert (tmp_path / f"run_logs/Player-{number}.log").read_text() == "the ball is lost\n"


def test_launched_simulators_have_ports_in_a_row(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_ports: Callable[[int], int]
) -> None:
    base_port = free_ports(2)
    bridge = make_bridge(base_port=base_port)
    bridge.launch(idle_program, 2)
    for port in (base_port, base_port + 1):
        simulator = connect(port)
        assert bridge.answered(simulator.later(simulator.exchange, messages.introduction())).unity_input


def test_a_program_that_exits_at_once_is_quoted(
    make_bridge: Any, simulator_program: Callable[[str], Command], tmp_path: Path
) -> None:
    bridge = make_bridge()
    bridge.launch(simulator_program("print exit"))
    with pytest.raises(LaunchError) as failure:
        bridge.receive(LONG_S)
    first, last = str(failure.value).splitlines()
    assert re.fullmatch(
        r"simulator 0 \(test, pid \d+\): exited with code 3, before its first step; "
        rf"its last lines \({tmp_path}/run_logs/Player-0\.log\):",
        first,
    )
    assert last == "  the ball is lost"


def test_a_program_that_cannot_be_started_leaves_nothing_behind(make_bridge: Any, tmp_path: Path) -> None:
    bridge = make_bridge()
    with pytest.raises(LaunchError, match="cannot be started"):
        bridge.launch(Command(env="gone", executable=(str(tmp_path / "gone"),)))
    assert bridge.receive(0.0) == []


def test_a_timeout_in_the_handshake_names_the_message_owed(
    make_bridge: Any,
    connect: Any,
    messages: Any,
    idle_program: Command,
    free_port: int,
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S, base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    simulator.later(simulator.exchange, messages.introduction())
    with pytest.raises(
        LaunchError,
        match=r"simulator 0 \(idle, pid \d+\): silent for 1 s \(timeout_wait\); "
        "it owes the second message of the handshake",
    ):
        bridge.receive(LONG_S)


def test_a_declaration_that_cannot_be_served_is_not_repeated(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    bridge = make_bridge(base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    bridge.begin(simulator)
    long = messages.describe(messages.step(behavior="x" * 201), behavior="x" * 201)
    reply = simulator.later(simulator.exchange, long)
    with pytest.raises(
        DeclarationError, match=r"^simulator 0 \(idle, pid \d+\): behavior 'xxx.*at most 200 bytes"
    ):
        bridge.receive(LONG_S)
    assert "its name must be at most 200 bytes long, got 201" in simulator.refusal(reply)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("exit", "exited with code 3; starting it again"),
        ("goodbye", "stopped by itself (status 400), then exited with code 0; starting it again"),
    ],
)
def test_a_launched_simulator_that_ends_is_started_again_alone(
    make_bridge: Any, simulator_program: Callable[[str], Command], end: str, reason: str
) -> None:
    bridge = make_bridge()
    bridge.launch(simulator_program("introduce confirm first forever"))
    survivor = bridge.next_tick()
    bridge.launch(simulator_program(f"introduce confirm first {end}"))
    lost = bridge.next_tick()
    bridge.act(lost)
    departure = bridge.next_departure()
    assert departure.simulator == lost.simulator == 1
    assert departure.reason == f"simulator 1 (test, pid {pid_of(lost)}): {reason}"
    again = bridge.next_tick()
    assert again.simulator == 1
    assert list(again.new_specs) == [BALL]
    assert pid_of(again) != pid_of(lost)
    bridge.act(survivor)
    assert pid_of(bridge.next_tick()) == pid_of(survivor)


def test_a_simulator_that_times_out_is_killed_and_restarted(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S, base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    bridge.begin(simulator)
    reason = bridge.next_departure().reason
    assert "silent for 1 s (timeout_wait); it owes its next step" in reason
    assert reason.endswith("while its process still runs; starting it again")
    with pytest.raises(ProcessLookupError):
        os.kill(int(re.search(r"pid (\d+)", reason)[1]), 0)  # type: ignore[index]  # it is there


def test_a_stopped_simulator_that_stays_is_killed_and_restarted(
    make_bridge: Any, connect: Any, messages: Any, idle_program: Command, free_port: int
) -> None:
    bridge = make_bridge(base_port=free_port)
    bridge.launch(idle_program)
    simulator = connect(free_port)
    bridge.begin(simulator)
    simulator.later(simulator.exchange, messages.goodbye())
    simulator.later(simulator.exchange, messages.step())  # met with stop, and no excuse
    assert bridge.next_departure().reason.endswith(
        "stopped by itself (status 400), while its process still runs; starting it again"
    )


def test_restarts_that_are_used_up_end_the_run(
    make_bridge: Any, simulator_program: Callable[[str], Command]
) -> None:
    bridge = make_bridge(max_lifetime_restarts=1, restarts_rate_limit_n=-1)
    bridge.launch(simulator_program("introduce confirm first print exit"))
    bridge.act(bridge.next_tick())
    first_end = bridge.next_departure().reason
    assert "exited with code 3; starting it again; its last lines" in first_end
    assert first_end.endswith("  the ball is lost")
    bridge.act(bridge.next_tick())
    with pytest.raises(SimulatorLost) as failure:
        bridge.receive(LONG_S)
    assert "exited with code 3; it was already started again 1 of at most 1 times" in str(failure.value)
    assert str(failure.value).endswith("  the ball is lost")


def test_a_death_during_a_restart_spends_from_its_budget(
    make_bridge: Any, make_program: Callable[[str, str], Path], simulator_program: Callable[[str], Command]
) -> None:
    working = simulator_program("introduce confirm first die")
    # The second and third time it does not even come to its introduction.
    program = make_program(
        "frail.py",
        "import os, pathlib, sys\n"
        "starts = pathlib.Path(__file__).with_suffix('.starts')\n"
        "with starts.open('a') as file: file.write('x')\n"
        "if len(starts.read_text()) > 1: os._exit(3)\n"
        f"os.execv({working.executable[0]!r}, [{working.executable[0]!r}, *sys.argv[1:]])\n",
    )
    command = Command(env="frail", executable=(str(program),), arguments=working.arguments)
    bridge = make_bridge(max_lifetime_restarts=2, restarts_rate_limit_n=-1)
    bridge.launch(command)
    bridge.act(bridge.next_tick())
    assert bridge.next_departure().reason.endswith("was killed by SIGKILL; starting it again")
    assert bridge.next_departure().reason.endswith("exited with code 3; starting it again")
    with pytest.raises(SimulatorLost, match="started again 2 of at most 2 times"):
        bridge.receive(LONG_S)


def test_a_base_port_that_is_taken_is_named(make_bridge: Any, idle_program: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        bridge = make_bridge(base_port=port)
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port} is in use"):
            bridge.launch(idle_program)
