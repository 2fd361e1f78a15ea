"""Cut connections, visitors that leave, and the addresses from which a connection is accepted."""

from __future__ import annotations

import random
import secrets
import sys
from collections import Counter

import grpc
import pytest
from fault_counts import fault_counts
from mutations import conversation
from network_lines import Proxy
from processes import (
    WaitTimeout,
    free_port,
    pause,
    small_settings,
    steps,
    wait_until,
    write_configuration,
)
from raw_clients import first_refusal

from unity_bridge.remote.dialing import EXCHANGE, authorization, find_trainer
from unity_bridge.remote.join_code import JoinCode
from unity_bridge.remote.private_files import FOLDER_VARIABLE


@fault_counts(None, 55)
def test_a_line_that_is_cut(scene, note, count: int) -> None:
    """A connection that is cut for ``count`` seconds goes on with the same conversation."""
    write_configuration(scene.folder, {"3DBall": small_settings()})
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1", "--timeout-wait=60")
    run.wait_for_output("Listening on port")
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


@pytest.mark.thorough
def test_a_visitor_that_left_keeps_no_run_from_its_end(scene, note) -> None:
    write_configuration(scene.folder, {}, default_settings=small_settings(max_steps=4000))
    port = free_port()
    run = scene.learn(f"--port={port}", "--seed=1", "--timeout-wait=3")
    run.wait_for_output("Listening on port")
    witness = scene.healthy(port)
    run.wait_for_output("Connected new brain: 3DBall")
    first_refusal(port, conversation(random.Random(1), "Other")[:3])
    code = run.end(60)
    note(
        "a visitor declares a behavior and leaves",
        "1",
        f"exit code {code} at step {max(steps(run.output))} of 4000",
    )
    assert code == 0, run.output[-1500:]
    assert witness.end() in (0, 4)
