"""Numbers of ports, whether one is free, which process listens there, and names of this machine."""

from __future__ import annotations

import argparse
import errno
import os
import socket
from typing import TYPE_CHECKING

from unity_bridge.errors import BridgeError, PortInUse
from unity_bridge.untrusted_text import printable

if TYPE_CHECKING:
    import psutil


def port_number(text: str, least: int = 0) -> int:
    """Returns the port that a flag names. Raises argparse.ArgumentTypeError for any other text."""
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not least <= int(text) < 65536:
        raise argparse.ArgumentTypeError(f"expected a port from {least} to 65535, got {printable(text[:40])}")
    return int(text)


def is_local_name(host: str | None) -> bool:
    """Whether the ``Host`` of an HTTP request is a name of this machine. Any other one is of a page that has its own
    name lead here, to read what only this machine may; none is no browser's."""
    return host is None or host.partition(":")[0] in ("127.0.0.1", "localhost")


def require_free(host: str, port: int) -> None:
    """Binds a port for a moment: gRPC does not tell why it could not.

    Raises:
        PortInUse: another process listens there.
        BridgeError: the address cannot be bound for another reason.
    """
    if not 0 <= port < 65536:  # gRPC would take the lower 16 bits
        raise BridgeError(f"port: expected 0 to 65535, got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            if os.name == "posix":  # on Windows the option would let us take the port from its owner
                # As gRPC does, so that connections of an earlier run that still linger do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{address_of(host, port)} is in use by {holder_of(port) or 'another process'}: stop that one (another "
                "training run?) or use another port"
            ) from error
        raise BridgeError(f"{address_of(host, port)}: cannot listen: {error.strerror or error}") from error


def address_of(host: str, port: int) -> str:
    """The host and port in one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def holder_of(port: int) -> str:
    """The process that listens on ``port``: its id and command; empty if that is another user's, or cannot be told."""
    try:
        import psutil
    except ImportError:  # a broken installation, of which the doctor tells
        return ""
    for process in psutil.process_iter():
        try:
            sockets = process.net_connections(kind="tcp")
            if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets):
                return _named(process)
        except psutil.Error:
            continue
    return ""


def _named(process: psutil.Process) -> str:
    command = printable(" ".join(" ".join(process.cmdline()).split()))  # it may be another user's
    return f"process {process.pid}" + (f" ({command[:100]})" if command else "")
