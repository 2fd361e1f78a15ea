"""The connections of all simulators: their conversations, deadlines and records to send, and whose an event is."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unity_bridge.server.origins import Origin
from unity_bridge.server.session import STOP_MESSAGE, Awaited, Session
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.side_channels import SideChannelRecord, engine_records, packed_size
from unity_bridge.steps import ActionBatch
from unity_bridge.transport.endpoint import Call
from unity_bridge.transport.inbox import ReadingClock

REPLY_BYTES = 3 * 2**20
"""Bytes of records in one reply. Unity takes no message over 4 MiB; the rest is for the actions."""

_MAX_REMEMBERED = 4096
"""Most departed simulators that are remembered."""


class Outbox:
    """Side channel records that wait for a reply which can carry them, in the order in which they were put."""

    def __init__(self) -> None:
        self._records: deque[SideChannelRecord] = deque()

    def put(self, records: Iterable[SideChannelRecord]) -> None:
        """Adds records at the end."""
        self._records.extend(records)

    def put_first(self, records: Sequence[SideChannelRecord]) -> None:
        """Adds records at the beginning."""
        self._records.extendleft(reversed(records))

    def take(self) -> list[SideChannelRecord]:
        """Takes as many as one reply can carry, but at least one if there is any. The others wait for the next."""
        taken: list[SideChannelRecord] = []
        left = REPLY_BYTES
        while self._records and (not taken or packed_size(self._records[0]) <= left):
            taken.append(self._records.popleft())
            left -= packed_size(taken[-1])
        return taken


@dataclass(slots=True, eq=False)
class Connection:
    """One simulator: its conversation, its last call, and how long it may still take."""

    number: int

    name: str
    """The name of the simulator in all texts."""

    origin: Origin

    session: Session

    deadline: float | None
    """When it is timed out, by ``clock``; None while it is not its turn."""

    clock: ReadingClock

    peer: str = ""
    """Its connection as gRPC names it; empty until a launched program has introduced itself."""

    is_verified: bool = False
    """Whether the system says that the connection is the launched program's own."""

    last_call: Call | None = None

    owed_actions: bool = False
    """Whether the last call is a tick that waits for actions."""

    has_stepped: bool = False

    outbox: Outbox = field(default_factory=Outbox)
    """Side channel records for the next reply."""

    is_wait_logged: bool = False
    """Whether it was logged that the trainer waits for its message."""

    end_reason: str = ""
    """Why the conversation is over, while the process has a moment left to exit."""

    def reply(self, actions: Mapping[str, ActionBatch], *, timeout_s: float) -> None:
        """Answers the tick that waits; the next message is due within the timeout.

        Raises:
            ValueError: no tick waits, or not for these actions.
        """
        call = self._waiting_call()
        call.answer(self.session.reply(actions, self.outbox.take()))
        self.owed_actions = False
        self.expect_message(timeout_s)

    def reset(self, *, timeout_s: float) -> None:
        """Answers the tick that waits with RESET; raises like ``reply``."""
        call = self._waiting_call()
        call.answer(self.session.reset(self.outbox.take()))
        self.owed_actions = False
        self.expect_message(timeout_s)

    def expect_message(self, timeout_s: float) -> None:
        """Begins the simulator's turn, unless the conversation is over."""
        if self.session.awaited is not Awaited.NOTHING:
            self.deadline = self.clock.now() + timeout_s
            self.is_wait_logged = False

    def is_overdue(self, now: float) -> bool:
        """Whether its time is up."""
        return self.deadline is not None and now >= self.deadline

    def waited_s(self, now: float, timeout_s: float) -> float:
        """Returns how long it has owed a message; 0 while it is not its turn, or its process is about to exit."""
        return 0.0 if self.deadline is None or self.end_reason else now - (self.deadline - timeout_s)

    @property
    def is_greeted(self) -> bool:
        """Whether it has had its first reset, and the conversation continues."""
        return self.session.awaited in (Awaited.FIRST_STEP, Awaited.STEP)

    def send_stop(self) -> bool:
        """Ends the conversation by status 400 if a tick waits. Returns whether one did."""
        if self.last_call is None or not self.owed_actions:
            return False
        self.last_call.answer(STOP_MESSAGE)
        self.owed_actions = False
        return True

    def refuse(self, reason: str) -> None:
        """Fails the call that waits, if there is one."""
        if self.last_call is not None and self.owed_actions:
            self.last_call.refuse(f"{self.name}: {reason}")
            self.owed_actions = False

    def _waiting_call(self) -> Call:
        if self.last_call is None or not self.owed_actions:
            raise ValueError(f"{self.name} has no tick to answer")
        return self.last_call


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
