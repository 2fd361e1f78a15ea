from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unity_bridge.transport import peers
from unity_bridge.transport.peers import belongs_to_process, is_connected

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system tells nothing"),
]

CLIENT = """
import socket, sys
with socket.socket(socket.AF_INET6 if sys.argv[2] == "6" else socket.AF_INET) as client:
    client.connect(("::ffff:127.0.0.1" if sys.argv[2] == "6" else "127.0.0.1", int(sys.argv[1])))
    sys.stdin.read()
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("family", ["4", "6"])
@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; true', "wrapper"]], ids=["itself", "wrapped"])
def test_a_connection_belongs_to_its_process_and_its_ancestors(
    server: socket.socket, family: str, wrapper: list[str]
) -> None:
    port = server.getsockname()[1]
    line = [*wrapper, sys.executable, "-c", CLIENT, str(port), family]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as client:
        connection, (host, their_port) = server.accept()
        peer = f"ipv4:{host}:{their_port}"
        with connection:
            assert belongs_to_process(peer, port, client.pid)
            assert belongs_to_process(peer, port, os.getpid())  # its parent
            assert is_connected(peer, port)
            client.communicate()
            assert is_connected(peer, port) is False
            assert not belongs_to_process(peer, port, client.pid)


def test_a_connection_is_of_no_other_process(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        host, their_port = client.getsockname()
        assert not belongs_to_process(f"ipv4:{host}:{their_port}", port, other.pid)
        assert not belongs_to_process(f"ipv4:127.0.0.2:{their_port}", port, os.getpid())
        other.communicate(b"\n")


@pytest.mark.parametrize(
    "peer", ["", "unix:/tmp/socket", "ipv4:nowhere:1", "ipv4:127.0.0.1:port", "ipv6:[::1"]
)
def test_a_malformed_peer_is_not_looked_up(peer: str) -> None:
    assert is_connected(peer, 5004) is None
    assert not belongs_to_process(peer, 5004, os.getpid())


def test_a_connection_is_gone_that_is_missing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    there = iter([False, True, False, False])
    monkeypatch.setattr(peers, "is_connected", lambda *_: next(there))
    absences, caller = peers.Absences(), ("ipv4:127.0.0.1:50123", 5005)
    assert [absences.gone([caller]) for _ in range(4)] == [set(), set(), set(), {caller}]
