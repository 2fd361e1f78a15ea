"""Numbers of ports, as flags and callers name them."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from trainer_service.commands.parser import build_parser
from unity_bridge.errors import BridgeError
from unity_bridge.transport.endpoint import Endpoint
from unity_bridge.transport.inbox import Inbox
from unity_bridge.transport.ports import holder_of, port_number

WRONG = ("-1", "65536", "70000", "9" * 5000, "5e3", "٣", "", "5004 ")


@pytest.mark.parametrize("text", WRONG)
def test_a_text_that_is_no_port(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a port from 1 to 65535, got ") as caught:
        port_number(text, 1)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(
    "command",
    [
        "learn", "suggest", "doctor", "relay", "watch sim:basic", "demo", "evaluate duel --against human",
        "record-demo sim:basic --policy keyboard -o x.demo",
    ],
)  # fmt: skip
def test_every_port_of_the_command_line_is_checked(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert build_parser().parse_args([*command.split(), "--port=5005"]).port == 5005
    for text in WRONG[:3]:
        with pytest.raises(SystemExit) as caught:
            build_parser().parse_args([*command.split(), f"--port={text}"])
        assert caught.value.code == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.endswith(f"argument --port: expected a port from 0 to 65535, got {text}")


@pytest.mark.process
@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_no_port_stands_for_another(port: int) -> None:
    with pytest.raises(BridgeError, match=f"port: expected 0 to 65535, got {port}"):
        Endpoint("127.0.0.1", port, Inbox(direct=False), capacity=1)


@pytest.mark.process
def test_the_holder_of_a_port_is_named_in_a_printable_line() -> None:
    serves = "import socket\ns = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    command = [sys.executable, "-c", f"# \x1b[2J\n{serves}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        named = holder_of(int(process.stdout.readline()))
        process.kill()
    assert named.startswith(f"process {process.pid} ({sys.executable} -c # \\x1b[2J import ")
    assert named.isprintable()
