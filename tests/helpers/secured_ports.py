"""Ports with TLS and tokens in this process, and servers that only claim to be one."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

from unity_bridge.remote.access import RemoteAccess
from unity_bridge.remote.join_code import JoinCode
from unity_bridge.remote.key_pair import make_key_pair
from unity_bridge.transport.endpoint import Call, Endpoint
from unity_bridge.transport.inbox import Inbox


@dataclass
class SecuredPort:
    """An open port, which echoes every message that it reads."""

    access: RemoteAccess
    port: int
    seen: list[bytes] = field(default_factory=list)

    @property
    def code(self) -> JoinCode:
        code = self.access.join_code()
        assert code is not None
        return code


@contextmanager
def secured_port(
    access: RemoteAccess, *, direct: bool | None = None, port: int = 0, host: str = "127.0.0.1"
) -> Iterator[SecuredPort]:
    """A port that is served by a thread as long as the context lasts."""
    inbox = Inbox(direct=direct)
    endpoint = Endpoint(host, port, inbox, capacity=8, security=access)
    access.announce(host, endpoint.port)
    opened = SecuredPort(access, endpoint.port)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            with contextlib.suppress(Empty):
                call = inbox.get(timeout=0.02)
                if isinstance(call, Call):
                    assert isinstance(call.data, bytes)
                    opened.seen.append(call.data)
                    call.answer(call.data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield opened
    finally:
        over.set()
        thread.join()
        endpoint.stop()


@dataclass
class Impostor:
    """A TLS server with a key of its own, which records what clients send after the handshake."""

    port: int
    received: list[bytes] = field(default_factory=list)
    handshakes: int = 0


@contextmanager
def impostor(folder: Path, pem: bytes | None = None) -> Iterator[Impostor]:
    """Listens as long as the context lasts. pem: a key with its certificate; a new one if None."""
    path = folder / "impostor.pem"
    path.write_bytes(pem or make_key_pair())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        found, over = Impostor(int(listener.getsockname()[1])), threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError, OSError):
                    line, _ = listener.accept()
                    with line, context.wrap_socket(line, server_side=True) as tls:
                        found.handshakes += 1
                        tls.settimeout(0.5)
                        while data := tls.recv(2**16):
                            found.received.append(data)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()
