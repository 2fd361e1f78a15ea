"""The process at the other end of a connection, as far as the system tells. Linux does, others do not."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote

_PROC = Path("/proc")
_ESTABLISHED = "01"
_MAPPED = "0000000000000000FFFF0000"
"""Prefix in the table of an IPv4 address that an IPv6 socket uses."""

_MOST_PROCESSES = 1000
"""Processes of one program that are looked at; one that forks without end stays unverified."""


SocketTable = list[tuple[str, str, str, str]]
"""Local address, remote address, state and inode of each TCP socket, as the system writes them."""


def is_connected(peer: str, port: int, table: SocketTable | None = None) -> bool | None:
    """Whether the connection of a peer, as gRPC names it, to a port still stands; None if the system does not tell.

    A caller with many connections passes the table, read once. It may miss a connection while others come and go.
    """
    addresses = _addresses(peer)
    table = read_sockets() if table is None else table
    if not addresses or not table:
        return None
    return any(
        state == _ESTABLISHED and remote in addresses and local.endswith(f":{port:04X}")
        for local, remote, state, _ in table
    )


def read_sockets() -> SocketTable:
    """Returns all TCP sockets; see proc(5). Empty where the system does not tell."""
    rows: SocketTable = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                rows.append((fields[1], fields[2], fields[3], fields[9]))
    return rows


class Absences:
    """Callers whose connections are missing in two looks in a row; the table may miss one that stands once."""

    def __init__(self) -> None:
        self._missing: frozenset[tuple[str, int]] = frozenset()

    def gone(self, callers: Collection[tuple[str, int]]) -> frozenset[tuple[str, int]]:
        """Returns those of these callers, each a peer and its port, that are gone as far as the system tells."""
        table = read_sockets() if callers else []
        missing = frozenset(each for each in callers if is_connected(*each, table) is False)
        gone, self._missing = missing & self._missing, missing
        return gone


def belongs_to_process(peer: str, port: int, pid: int) -> bool:
    """Whether the connection of a peer to a port of ours is open in a process, or in one that descends from it.

    False is no proof of the contrary: a process may have left its parents, be another user's or in a container.
    """
    addresses = _addresses(peer)
    sockets = {
        f"socket:[{inode}]"
        for local, remote, state, inode in read_sockets()
        if state == _ESTABLISHED and local in addresses and remote.endswith(f":{port:04X}")
    }
    return bool(sockets) and any(not sockets.isdisjoint(_open_files(each)) for each in _descendants(pid))


def host_of(peer: str) -> str:
    """Returns the host of a peer as gRPC names it: ``127.0.0.1`` of ``ipv4:127.0.0.1:50123``."""
    return unquote(peer).partition(":")[2].rpartition(":")[0]


def _addresses(peer: str) -> frozenset[str]:
    """Returns how the table may write a peer such as ``ipv4:127.0.0.1:50123``; empty for any other text."""
    family, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    try:
        number = f"{int(port):04X}"
        if family == "ipv4":
            host_hex = _kernel_hex(socket.inet_pton(socket.AF_INET, host))
            return frozenset({f"{host_hex}:{number}", f"{_MAPPED}{host_hex}:{number}"})
        if family == "ipv6":
            return frozenset({f"{_kernel_hex(socket.inet_pton(socket.AF_INET6, host.strip('[]')))}:{number}"})
    except (OSError, ValueError):
        pass
    return frozenset()


def _kernel_hex(packed: bytes) -> str:
    """Returns an address as the kernel prints it: word by word, each as the machine would write a number."""
    words = memoryview(packed).cast("I")
    return "".join(f"{word:08X}" for word in words)


def _descendants(pid: int) -> Iterator[int]:
    """Yields a process and its descendants."""
    waiting, seen = [pid], 0
    while waiting and seen < _MOST_PROCESSES:
        parent = waiting.pop()
        seen += 1
        yield parent
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(parent) / "task").iterdir():
                with contextlib.suppress(OSError):
                    waiting += map(int, (thread / "children").read_text().split())


def _open_files(pid: int) -> Iterator[str]:
    """Yields the files that a process has open; none for one that is another user's, or gone."""
    folder = _PROC / str(pid) / "fd"
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):
                yield os.readlink(folder / descriptor)
