"""Slow, broken and cut connections, and the addresses from which one is accepted."""

from __future__ import annotations

import re
import secrets
import signal
import sys
import time
from collections import Counter

import grpc
import pytest
from fault_counts import fault_counts
from network_lines import Proxy
from processes import (
    Process,
    WaitTimeout,
    free_port,
    pause,
    small_settings,
    steps,
    wait_until,
    write_configuration,
)

from unity_bridge.remote.dialing import EXCHANGE, authorization, find_trainer
from unity_bridge.remote.join_code import JoinCode
from unity_bridge.remote.private_files import FOLDER_VARIABLE


@pytest.fixture
def listening(scene, request: pytest.FixtureRequest) -> tuple[Process, int]:
    """A run, and where it listens; a test may choose its patience."""
    write_configuration(scene.folder, {"3DBall": small_settings()})
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1", f"--timeout-wait={getattr(request, 'param', 60)}")
    run.wait_for_output("Listening on port")
    return run, port


@fault_counts(None, 55)
def test_a_line_that_is_cut(scene, listening, note, count: int) -> None:
    """A connection that is cut for ``count`` seconds goes on with the same conversation."""
    run, port = listening
    with Proxy(port) as proxy:
        witness = scene.healthy(proxy.port)
        witness.go_on()
        proxy.is_cut = True
        pause(count)
        proxy.is_cut = False
        try:
            witness.go_on(20)
            went_on = True
        except (AssertionError, WaitTimeout):
            went_on = False
        note(
            "a line that is cut",
            f"for {count} s",
            f"the same conversation goes on: {'yes' if went_on else 'no'}",
        )
        assert went_on
        assert run.output.count("Connected to ") == 1
        witness.destroy()


@pytest.mark.parametrize("listening", [10], indirect=True)
@fault_counts(None, 20)
def test_attached_simulators_that_are_killed(scene, listening, note, count: int) -> None:
    """A killed simulator is noticed at once, whichever side's turn it is."""
    run, port = listening
    witness = scene.healthy(port, pause_s=0.002)
    witness.go_on()
    noticed = []
    for _ in range(count):
        victim = scene.healthy(port, pause_s=0.05)  # nearly always its own turn
        victim.go_on(3)
        departed = departures(run)
        began = time.monotonic()
        victim.signal(signal.SIGKILL)
        wait_until(lambda: departures(run) > departed, "its departure")  # noqa: B023
        noticed.append(time.monotonic() - began)
        victim.end()
    witness.go_on()
    note(
        "attached simulators killed in their own turn",
        f"{count}, `--timeout-wait=10`",
        f"noticed after {max(noticed):.1f} s at most",
    )
    assert run.poll() is None


def departures(run: Process) -> int:
    return len(re.findall(r"closed its connection|silent for|is gone|broke off", run.output))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@fault_counts(None, 1000)
def test_other_machines_come_in_only_with_a_token(scene, note, host: str, count: int) -> None:
    """Callers with a wrong token, or none, beside a simulator that trains."""
    pytest.importorskip("cryptography")
    user = {FOLDER_VARIABLE: str(scene.folder / "user")}
    write_configuration(scene.folder, {"3DBall": small_settings()})
    run = scene.learn(f"--host={host}", f"--port={free_port()}", **user)
    text = run.wait_for_output("join: TS1-").partition("join: ")[2].split()[0]
    simulator = scene.start(sys.executable, "-m", "trainer_service", "simulate", "sim:3dball", "--join", text)
    run.wait_for_output("Step: ")
    code = JoinCode.parse(text)
    refused: Counter[str] = Counter()
    for number in range(count):
        if number % 20 == 0:
            channel = find_trainer(code).open_channel()
        token = [(), authorization(secrets.token_urlsafe(16)), authorization(code.token[:-1])][number % 3]
        try:
            channel.unary_unary(EXCHANGE)(b"", timeout=60, metadata=token)
        except grpc.RpcError as error:
            refused[error.code().name] += 1
        if number % 20 == 19:
            channel.close()
    known = len(steps(run.output))
    wait_until(lambda: len(steps(run.output)) > known, "more steps")
    note(
        f"wrong tokens, or none, at `--host {host}`",
        f"{count} calls",
        f"{count - refused.total()} accepted, answers {', '.join(refused)}; the simulator with a token trains on",
    )
    assert refused.total() == count
    assert refused.keys() == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    assert simulator.poll() is None
    assert run.output.count("Connected to ") == 1
    run.wait_for_output("Refused calls without a valid token")
