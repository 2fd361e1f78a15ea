"""Ports to which simulators attach, and how long they may be without any."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from unity_bridge.errors import BridgeError, LaunchError, PortInUse, SimulatorLost

LONG_S = 60.0
SHORT_S = 1.0  # long enough for an answer on loopback when both cores are busy


def test_a_port_in_use_is_named(make_bridge: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port} is in use by process {os.getpid()} "):
            make_bridge().listen(port=port)


def test_a_port_is_free_again_after_closing(make_bridge: Any, connect: Any, messages: Any) -> None:
    first = make_bridge()
    port = first.listen(port=0)
    simulator = connect(port)
    simulator.later(simulator.start, messages.first_step())
    first.next_tick()
    first.close()
    assert make_bridge().listen(port=port) == port


def test_an_address_of_another_machine_is_refused(make_bridge: Any) -> None:
    with pytest.raises(BridgeError, match=r"192\.0\.2\.1:5999: cannot listen: "):
        make_bridge().listen("192.0.2.1", 5999)


def test_no_simulator_is_an_error_with_advice(make_bridge: Any) -> None:
    bridge = make_bridge(timeout_wait_s=0.05)
    port = bridge.listen(port=0)
    with pytest.raises(
        LaunchError, match=f"no simulator attached to 127.0.0.1:{port} within 0.05 s .*press Play"
    ):
        bridge.receive(LONG_S)


def test_no_simulator_returning_is_an_error_naming_the_last(
    make_bridge: Any, connect: Any, messages: Any
) -> None:
    bridge = make_bridge(timeout_wait_s=SHORT_S)
    simulator = connect(bridge.listen(port=0))
    bridge.begin(simulator)
    simulator.later(simulator.exchange, messages.goodbye())
    bridge.next_departure()
    with pytest.raises(SimulatorLost, match=r"that was simulator 0 \(.*\): stopped by itself"):
        bridge.receive(LONG_S)
