"""A trainer that other machines reach: ``learn --host``, ``simulate --join`` and ``doctor --join``."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode
from unity_bridge.remote.private_files import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user who has nothing yet."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.fixture
def learn(start, configure) -> Callable[..., Any]:
    """Starts a run that trains until a few steps; returns it, and its join code if it prints one."""
    pytest.importorskip("cryptography")
    configure("Basic", max_steps=40)

    def run(*flags: str) -> tuple[Any, str]:
        # A new interpreter: what gRPC may log is settled before it is loaded.
        line = "-um trainer_service learn config.yaml --run-id=far --port=0 --timeout-wait=60"
        running = start(*line.split(), *flags, program=sys.executable)
        said = running.until("join: ")
        return running, said.partition("join: ")[2].strip()

    return run


def test_a_run_on_another_machine(learn, mlagents_style, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, code = learn("--host=0.0.0.0")
    address = JoinCode.parse(code).addresses[0]
    wrong = dataclasses.replace(JoinCode.parse(code), token="not-the-token-at-all").text()

    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as scanner:
        scanner.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert scanner.recv(2**16) == b""

    refused = mlagents_style("simulate", "sim:basic", "--join", wrong)
    assert refused.code == 1
    assert f"the trainer on {address} refuses the call: its token is wrong" in refused.err

    checks = json.loads(mlagents_style("doctor", "--json", "--join", code).out)["checks"]
    verdicts = {each["check"]: each["verdict"] for each in checks}
    found = {each["check"]: each["found"] for each in checks}
    for check in ("join code", "way to the trainer", "certificate", "token", "clock"):
        assert verdicts[check] == "ok", found
    assert re.match(
        r"\d+\.\d\d ms: each simulator makes at most \d+ exchanges per second", found["round trip"]
    )

    monkeypatch.setenv(JOIN_VARIABLE, code)
    played = mlagents_style("simulate", "sim:basic", "--join", "--reconnect=0")
    assert played.code == 0, played
    assert "the trainer ended the conversation" in played.err
    assert run.end() == 0, run.output
    assert re.search(r"Refused calls without a valid token: \d+, of ", run.output), run.output
    assert "ssl_transport_security" not in run.output, "a scanner cannot fill the log"
    assert run.output.count(code) == 1
    for path in Path("results").rglob("*"):
        assert path.is_dir() or code.encode() not in path.read_bytes(), "what is passed on holds no secret"
    if os.name == "posix":
        assert {stat.S_IMODE(each.stat().st_mode) for each in (user / "remote").iterdir()} == {0o600}


def test_without_flags_nothing_listens_beyond_this_machine(start, configure, user: Path) -> None:
    configure("Basic")
    run = start("learn", "config.yaml", "--port=0", "--timeout-wait=60")
    run.until("Listening on port")
    process = psutil.Process(run.pid)
    listening = [each for each in process.net_connections(kind="tcp") if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.ip for each in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert listening
    assert not user.exists()


CODE = JoinCode(("192.0.2.1:5005",), "t" * 24, b"\x01" * 32).text()
NO_CODE = f"expected a code, or one in the environment variable {JOIN_VARIABLE}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("simulate sim:basic --join=5004", "join code: expected TS1-… as the trainer prints it, got '5004'"),
        ("simulate sim:basic --join", NO_CODE),
        ("simulate sim:basic --address=trainer:5005", "--address: expected --join with it"),
        ("simulate sim:basic --address=trainer", "address: expected HOST:PORT, got 'trainer'"),
        ("relay", NO_CODE),
        ("relay --address=192.0.2.1:5004", "192.0.2.1:5004: expected --join beside an address of another"),
        ("relay --address=localhost", "address: expected HOST:PORT, got 'localhost'"),
        ("relay --join=SWMTKN-1", "join code: expected TS1-… as the trainer prints it, got 'SWMTKN-1'"),
        (f"relay --join={CODE} --env=sim:none", "sim:none: no such scene"),
        (f"relay --join={CODE} --env=no/such/build", "env 'no/such/build': no such program"),
        (f"relay --join={CODE} --num-envs=0", "env_settings.num_envs"),
    ],
)
def test_flags_of_simulate_and_relay(
    mlagents_style, monkeypatch: pytest.MonkeyPatch, line: str, expected: str
) -> None:
    monkeypatch.delenv(JOIN_VARIABLE, raising=False)
    said = mlagents_style(*line.split())
    assert said.code == 2
    assert expected in said.err
    assert "Traceback" not in said.err


def test_a_code_that_the_doctor_cannot_read(mlagents_style) -> None:
    said = mlagents_style("doctor", "--join=TS1-AAAA")
    assert said.code == 2
    assert "fail  join code: join code: 8 characters that are not a whole code" in said.out
