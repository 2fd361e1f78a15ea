"""Who is there, and who says what."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from typing import Any

from unity_bridge.programs.launched_process import LaunchedProcess
from unity_bridge.server.connection import Connection
from unity_bridge.server.outbox import Outbox
from unity_bridge.server.session import Session
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.side_channels import SideChannelRecord, engine_records
from unity_bridge.transport.endpoint import Endpoint, readable

_MAX_REMEMBERED = 4096
"""How many of those that departed are remembered."""


class Connections:
    """Connections by the simulator's number, by the port of a launched process, by the line of an attached one.

    Who departed keeps its port, and for a while a mark on its line, so that what it still says is known to be its
    own; nothing else is kept of those that attached.
    """

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._present: dict[int, Connection] = {}
        self._by_endpoint: dict[Endpoint, Connection] = {}
        self._by_peer: dict[str, Connection] = {}
        self._departed: dict[str, None] = {}
        self._next_number = 0
        self._unanswerable: dict[int, None] = {}

    def __iter__(self) -> Iterator[Connection]:
        """Those whose conversation lasts. They may depart meanwhile."""
        return iter(list(self._present.values()))

    def __contains__(self, connection: Connection) -> bool:
        """Whether this conversation lasts, and not one of a successor."""
        return self._present.get(connection.number) is connection

    def take_number(self) -> int:
        """A number that no simulator had before."""
        self._next_number += 1
        return self._next_number - 1

    def open_attached(self, peer: str) -> Connection:
        """A new conversation with a simulator that attached."""
        number = self.take_number()
        connection = self._new_connection(number, f"simulator {number} ({readable(peer)})")
        connection.peer = peer
        self._by_peer[peer] = connection
        self._departed.pop(peer, None)
        return connection

    def open_launched(self, launched: LaunchedProcess) -> Connection:
        """A new conversation with a process of ours."""
        number, env = launched.plan.number, launched.plan.command.env
        connection = self._new_connection(number, f"simulator {number} ({env}, pid {launched.program.pid})")
        connection.launched = launched
        self._by_endpoint[launched.endpoint] = connection
        return connection

    def _new_connection(self, number: int, name: str) -> Connection:
        settings = self._settings
        outbox = Outbox()
        session = Session(
            seed=(settings.seed + number) % 2**31,
            num_areas=settings.num_areas,
            greeting=lambda: self._greeting(number, outbox),
        )
        deadline = time.monotonic() + settings.timeout_wait_s
        connection = Connection(number, name, session, deadline, outbox=outbox)
        self._present[number] = connection
        return connection

    def _greeting(self, number: int, outbox: Outbox) -> list[SideChannelRecord]:
        """What a simulator hears with its first reset: ours, and then what is queued for it already."""
        engine = self._settings.engine
        ours = [*(engine_records(engine) if engine else ()), *self._settings.greeting(number)]
        outbox.put_first(ours)
        return outbox.take()

    def remove(self, connection: Connection) -> None:
        """A conversation is over; a tick of it that waits will be answered in vain."""
        del self._present[connection.number]
        connection.deadline = None
        if connection.owed_actions:
            connection.owed_actions = False
            _remember(self._unanswerable, connection.number)
        if connection.launched is None:
            self._by_peer.pop(connection.peer, None)
            _remember(self._departed, connection.peer)

    def note_tick(self, connection: Connection) -> None:
        """It waits for actions, so an answer of this number is no longer meant for a predecessor."""
        self._unanswerable.pop(connection.number, None)

    def answerable(self, number: int) -> Connection | None:
        """Whose tick shall be answered; None, but once, if it departed meanwhile. ValueError if nobody is there."""
        if number in self._unanswerable:
            del self._unanswerable[number]
            return None
        if number not in self._present:
            raise ValueError(f"simulator {number} has no tick to answer")
        return self._present[number]

    def recipient(self, number: int) -> Connection | None:
        """Who hears what is said to this number; None if it departed. ValueError if there never was one."""
        if not 0 <= number < self._next_number:
            raise ValueError(f"there is no simulator {number}")
        return self._present.get(number)

    def by_endpoint(self, endpoint: Endpoint) -> Connection | None:
        """The launched simulator of a port, present or not; None if it was given up."""
        return self._by_endpoint.get(endpoint)

    def by_peer(self, peer: str) -> Connection | None:
        """The attached simulator of a line, while it is present."""
        return self._by_peer.get(peer)

    def has_departed(self, peer: str) -> bool:
        """Whether the last one who attached on a line has departed, as far as that is still known."""
        return peer in self._departed

    def launched_processes(self) -> list[LaunchedProcess]:
        """All processes of ours that were not given up."""
        return [each.launched for each in self._by_endpoint.values() if each.launched is not None]

    def forget_process(self, launched: LaunchedProcess) -> None:
        """Nothing that comes from its port counts any longer."""
        del self._by_endpoint[launched.endpoint]

    def forget_peer(self, peer: str) -> None:
        """The line is gone; another one of its name would be somebody else's."""
        self._departed.pop(peer, None)


def _remember(marks: dict[Any, None], mark: Hashable) -> None:
    """Keeps the newest marks."""
    marks[mark] = None
    if len(marks) > _MAX_REMEMBERED:
        del marks[next(iter(marks))]
