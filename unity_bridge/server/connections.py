"""The connections of all simulators, and the lookup of the one that an event belongs to."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from unity_bridge.server.connection import Connection
from unity_bridge.server.origins import Origin
from unity_bridge.server.outbox import Outbox
from unity_bridge.server.session import Session
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.side_channels import SideChannelRecord, engine_records
from unity_bridge.transport.endpoint import Call
from unity_bridge.transport.reading_clock import ReadingClock

_MAX_REMEMBERED = 4096
"""Most departed simulators that are remembered."""


class Connections:
    """Connections by the simulator's number, and by the source of its calls.

    A departed process keeps its port, and the peer of a departed simulator is remembered for a while, so that late
    messages are recognized. Nothing else is kept of attached simulators.
    """

    def __init__(self, settings: BridgeSettings, clock: ReadingClock | None = None) -> None:
        """clock: what simulators' deadlines are measured by."""
        self._settings = settings
        self._clock = clock or ReadingClock()
        self._present: dict[int, Connection] = {}
        self._by_source: dict[Hashable, Connection] = {}
        self._departed: dict[str, None] = {}
        self._next_number = 0
        self._unanswerable: dict[int, None] = {}

    def __iter__(self) -> Iterator[Connection]:
        """Iterates over present simulators, which may depart meanwhile."""
        return iter(list(self._present.values()))

    def __contains__(self, connection: Connection) -> bool:
        """Whether this very conversation lasts, not one of a successor."""
        return self._present.get(connection.number) is connection

    def take_number(self) -> int:
        """Returns a number that no simulator had before."""
        self._next_number += 1
        return self._next_number - 1

    def open(self, number: int, origin: Origin, *, peer: str = "") -> Connection:
        """Begins a conversation. peer: its connection as gRPC names it, where that is known."""
        settings = self._settings
        outbox = Outbox()
        session = Session(
            seed=(settings.seed + number) % 2**31,
            num_areas=settings.num_areas,
            greeting=lambda: self._greeting(number, outbox),
            picture_layout=settings.picture_layout,
        )
        deadline = self._clock.now() + settings.timeout_wait_s
        name = f"simulator {number} ({origin.label})"
        connection = Connection(
            number, name, origin, session, deadline, self._clock, peer=peer, outbox=outbox
        )
        self._present[number] = self._by_source[origin.source] = connection
        self._departed.pop(peer, None)
        return connection

    def _greeting(self, number: int, outbox: Outbox) -> list[SideChannelRecord]:
        """Returns the records of a simulator's first reset: engine, greeting, and then those queued for it already."""
        engine = self._settings.engine
        ours = [*(engine_records(engine) if engine else ()), *self._settings.greeting(number)]
        outbox.put_first(ours)
        return outbox.take()

    def remove(self, connection: Connection) -> None:
        """Ends a conversation; the answer to a tick of it that waits will be dropped."""
        del self._present[connection.number]
        connection.deadline = None
        if connection.owed_actions:
            connection.owed_actions = False
            _remember(self._unanswerable, connection.number)
        if not connection.origin.is_own:
            self.forget(connection.origin)
            _remember(self._departed, connection.peer)

    def note_tick(self, connection: Connection) -> None:
        """Notes that it waits for actions, so that an answer to this number is no longer for a predecessor."""
        self._unanswerable.pop(connection.number, None)

    def answerable(self, number: int) -> Connection | None:
        """Returns the connection to be answered; None, once, if it departed meanwhile. ValueError if there is none."""
        if number in self._unanswerable:
            del self._unanswerable[number]
            return None
        if number not in self._present:
            raise ValueError(f"simulator {number} has no tick to answer")
        return self._present[number]

    def recipient(self, number: int) -> Connection | None:
        """Returns the connection of this number; None if it departed. ValueError if there never was one."""
        if not 0 <= number < self._next_number:
            raise ValueError(f"there is no simulator {number}")
        return self._present.get(number)

    def by_source(self, source: Hashable) -> Connection | None:
        """Returns the simulator of an endpoint, present or not, or of a peer, while it is present."""
        return self._by_source.get(source)

    def caller(self, call: Call) -> Connection | None:
        """Returns the simulator whose endpoint or peer a call came from; None if it was given up or departed."""
        return self._by_source.get(call.endpoint) or self._by_source.get(call.peer)

    def has_departed(self, peer: str) -> bool:
        """Whether the last simulator of a peer has departed, as far as that is still remembered."""
        return peer in self._departed

    def origins(self) -> list[Origin]:
        """Returns the origins of all simulators that were not given up."""
        return [each.origin for each in self._by_source.values()]

    def forget(self, origin: Origin) -> None:
        """Forgets a source: its events are ignored from now on."""
        self._by_source.pop(origin.source, None)

    def forget_peer(self, peer: str) -> None:
        """Forgets a peer that hung up; another connection of its name would be another client's."""
        self._departed.pop(peer, None)


def _remember(keys: dict[Any, None], key: Hashable) -> None:
    """Adds a key, and keeps the newest only."""
    keys[key] = None
    if len(keys) > _MAX_REMEMBERED:
        del keys[next(iter(keys))]
