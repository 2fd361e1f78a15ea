"""How we leave: everybody hears it, and gets a moment to go by itself."""

from __future__ import annotations

import time
from queue import Empty

from unity_bridge.programs.launched_process import Exit
from unity_bridge.server.connection import Connection
from unity_bridge.server.connections import Connections
from unity_bridge.server.session import STOP_MESSAGE, Awaited
from unity_bridge.transport.endpoint import Call, HangUp
from unity_bridge.transport.inbox import Inbox


def shut_down(connections: Connections, inbox: Inbox, grace_s: float) -> None:
    """Answers everybody with status 400, and waits a while for those that owe the next message."""
    owing: set[Connection | None] = set()
    for connection in connections:
        underway = connection.session.awaited not in (Awaited.INTRODUCTION, Awaited.NOTHING)
        told = connection.send_stop()
        if underway and (connection.launched or not told):
            owing.add(connection)
    until = time.monotonic() + grace_s
    while (left := until - time.monotonic()) > 0:
        try:
            event = inbox.get(timeout=left if owing else 0.0)
        except Empty:
            return
        owing.discard(_released(event, connections))


def _released(event: object, connections: Connections) -> Connection | None:
    """Whom we need not wait for any longer: told by status 400, or its process ended."""
    match event:
        case Exit(endpoint):
            return connections.by_endpoint(endpoint)
        case HangUp(call):
            return connections.by_peer(call.peer)
        case Call() as call:
            call.answer(STOP_MESSAGE)
            return connections.by_peer(call.peer)
    return None
