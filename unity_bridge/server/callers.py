"""The check whether a call at a launched program's port is the program's own or a stranger's."""

from __future__ import annotations

import enum
import time

from unity_bridge.server.connections import Connection
from unity_bridge.server.session import is_introduction
from unity_bridge.transport import peers
from unity_bridge.transport.endpoint import Call

STRANGER_S = 1.0
"""How long a stranger is remembered: to find out which process has a connection takes a millisecond or more."""

_MAX_STRANGERS = 1024


class Caller(enum.Enum):
    """The verdict on a new connection at a launched program's port."""

    PROGRAM = "the system says that the connection is the program's"
    UNVERIFIED = "the system does not tell, and the program has no other connection"
    STRANGER = "it is another process, or cannot be shown to be the program"


class CallerCheck:
    """Tells launched programs from strangers at their ports, and remembers the strangers for a while."""

    def __init__(self) -> None:
        self._strangers: dict[tuple[int, str], float] = {}
        """Ports and the strangers there, and until when they are remembered, by ``time.monotonic``."""

    def identify(self, connection: Connection, call: Call) -> Caller:
        """Returns the verdict on a call at the port of the program to which ``connection`` belongs."""
        port, pid = call.endpoint.port, connection.origin.pid
        assert pid is not None
        if time.monotonic() < self._strangers.get((port, call.peer), 0.0):
            return Caller.STRANGER
        if peers.belongs_to_process(call.peer, port, pid):
            return Caller.PROGRAM
        if _has_live_peer(connection, port) or not is_introduction(call.data):
            self._remember_stranger(port, call.peer)
            return Caller.STRANGER
        return Caller.UNVERIFIED

    def _remember_stranger(self, port: int, peer: str) -> None:
        if len(self._strangers) >= _MAX_STRANGERS:
            self._strangers.clear()
        self._strangers[port, peer] = time.monotonic() + STRANGER_S


def _has_live_peer(connection: Connection, port: int) -> bool:
    """Whether a launched program has a connection that still stands."""
    return bool(connection.peer) and peers.is_connected(connection.peer, port) is not False
