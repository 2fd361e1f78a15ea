"""The deadlines of simulators that owe a message, and the search for connections that are gone."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from unity_bridge.server.connections import Connection, Connections
from unity_bridge.server.listeners import Listeners
from unity_bridge.server.session import Awaited
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.transport import peers
from unity_bridge.transport.inbox import Inbox

LOGGER = logging.getLogger(__name__)

BUSY_GRACE_S = 5.0
"""How long reading may continue without an end before a simulator that is late is timed out all the same."""

CHECK_INTERVAL_S = 1.0
"""Seconds between two looks for simulators that owe a message and are gone."""

LOG_WAIT_AFTER_S = 5.0
"""How long a simulator may owe a message before that is logged."""


class Lost(NamedTuple):
    """A simulator from which no message is expected any longer."""

    connection: Connection
    reason: str
    hangs: bool
    """Whether it let its time pass, so that its process may hang."""


class Timeouts:
    """The deadlines of all connections, and the connections whose deadline has passed."""

    def __init__(
        self, timeout_s: float, inbox: Inbox, connections: Connections, listeners: Listeners
    ) -> None:
        self._timeout_s = timeout_s
        self._inbox = inbox
        self._connections = connections
        self._listeners = listeners
        self._throttled = ThrottledLogger(LOGGER)
        self._absences = peers.Absences()
        self._check_at = 0.0
        self._busy_since: float | None = None
        """Since when the inbox was never seen empty, less the time that was not spent reading."""
        self.read_until = 0.0
        """When the inbox was last read, by its clock."""

    def resume(self, now: float) -> None:
        """Begins to read again; the time since ``read_until`` does not count as reading."""
        if self._busy_since is not None:
            self._busy_since += now - self.read_until

    def next_deadline(self, until: float) -> float:
        """Returns the earliest of all deadlines, ``until`` at the latest."""
        deadlines = [self._listeners.deadline, *(each.deadline for each in self._connections)]
        known = [deadline for deadline in deadlines if deadline is not None]
        return min([until, *known, self._check_at]) if known else until

    def is_check_due(self, now: float) -> bool:
        """Whether to look for lost simulators while others send messages: once a second."""
        return now >= self._check_at

    def is_inbox_drained(self, now: float) -> bool:
        """Whether simulators without a message here have sent none: all is read, or reading has taken long enough."""
        if self._inbox.empty():
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        return self._busy_since is None or now >= self._busy_since + BUSY_GRACE_S

    def lost(self, now: float) -> Iterator[Lost]:
        """Yields simulators that are overdue or disconnected. Each may be ended before the next is taken."""
        for connection in self._connections:
            if connection.is_overdue(now):
                hangs = not connection.end_reason
                yield Lost(connection, connection.end_reason or self._timeout_reason(connection), hangs)
        if now >= self._check_at:
            self._check_at = now + CHECK_INTERVAL_S
            yield from self._disconnected(now)

    def _disconnected(self, now: float) -> Iterator[Lost]:
        """Yields attached simulators that the system reports as disconnected, and logs late messages."""
        late: list[Connection] = []
        attached: dict[tuple[str, int], Connection] = {}
        for connection in self._connections:
            waited_s = connection.waited_s(now, self._timeout_s)
            if waited_s < CHECK_INTERVAL_S:
                continue
            if waited_s >= LOG_WAIT_AFTER_S and not connection.is_wait_logged:
                connection.is_wait_logged = True
                late.append(connection)
            if not connection.origin.is_own and connection.last_call is not None:
                attached[connection.peer, connection.last_call.endpoint.port] = connection
        for caller in self._absences.gone(attached):
            owed = attached[caller].session.awaited.value
            yield Lost(attached[caller], f"closed its connection; it owed {owed}", hangs=False)
        self._log_waits(late, now)

    def _log_waits(self, late: list[Connection], now: float) -> None:
        """Logs that messages are late: a line for each launched program, and one for all attached simulators."""
        # Programs may take their time to start.
        late = [each for each in late if each.session.awaited is not Awaited.INTRODUCTION]
        for each in late:
            if each.origin.is_own:
                self._log_wait(("launched", each.number), each, now)
        attached = [each for each in late if not each.origin.is_own]
        if attached:
            self._log_wait("attached", attached[0], now, others=len(attached) - 1)

    def _log_wait(self, kind: Hashable, connection: Connection, now: float, others: int = 0) -> None:
        waited_s = connection.waited_s(now, self._timeout_s)
        more = f" and {others:,} others" if others else ""
        self._throttled.log(
            kind,
            f"waiting for {connection.name}{more} for {waited_s:.0f} s: it owes {connection.session.awaited.value}",
        )

    def _timeout_reason(self, connection: Connection) -> str:
        waited = f"{self._timeout_s:g} s"
        return f"silent for {waited} (timeout_wait); it owes {connection.session.awaited.value}"
