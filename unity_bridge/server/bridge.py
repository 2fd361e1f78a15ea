"""The bridge: every simulator, launched or attached, behind one receive and one reply.

Threads, where there are any, end at the inbox. Everything here runs in the caller's thread, so no lock guards
anything. That includes decoding. Decoding in gRPC's threads was no faster with 1 or 8 simulators of 12 or 96 agents.
It also split up simulators that wait together (1.4 to 1.6 ticks per receive instead of 1.8 to 4.2).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from queue import Empty
from typing import Self

from unity_bridge.codec.envelope import LONG_MESSAGE
from unity_bridge.programs.executables import Command
from unity_bridge.programs.hosted_simulator import is_isolated
from unity_bridge.programs.launched_process import Exit
from unity_bridge.server import freed_memory
from unity_bridge.server.connections import Connection, Connections
from unity_bridge.server.event_handler import Event, EventHandler, Rejected
from unity_bridge.server.events import Departure, SimulatorInfo, Tick
from unity_bridge.server.listeners import Listeners
from unity_bridge.server.session import STOP_MESSAGE, Awaited
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.server.supervisor import Supervisor
from unity_bridge.server.timeouts import Timeouts
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.steps import ActionBatch
from unity_bridge.transport.endpoint import Call, Endpoint, HangUp
from unity_bridge.transport.inbox import Inbox
from unity_bridge.transport.relayed_calls import relayed_call
from unity_bridge.transport.service import PortSecurity

__all__ = ["Bridge", "BridgeSettings", "Departure", "SimulatorInfo", "Tick"]

READING_S = 0.05
"""Maximum seconds of reading events before the bridge handles them, however many more there are. A thousand waiting
simulators take half of it."""

GIVE_BACK_AFTER_S = 1.0
"""How long after the departure of a simulator that sent long messages freed memory is given back: by then the trainer
has forgotten what was of it, and gRPC its connection."""

HANDLING_S = 0.25
"""Maximum seconds of handling events before the bridge answers the handled ones."""


class Bridge:
    """A context manager that owns the ports, the conversations and the launched processes."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._inbox = Inbox()
        self._connections = Connections(settings, self._inbox.clock)
        self._listeners = Listeners(settings.timeout_wait_s, self._inbox.clock)
        self._supervisor = Supervisor(settings, self._inbox)
        self._timeouts = Timeouts(settings.timeout_wait_s, self._inbox, self._connections, self._listeners)
        self._handler = EventHandler(settings, self._connections, self._listeners)
        self._left: deque[Event] = deque()
        """Events that were read and have to wait until others are answered."""
        self._left_long: deque[Call] = deque()
        """Long messages of that kind, which wait until all else was acted on."""
        self._is_turn_of_long = False
        self._long_senders: set[int] = set()
        """Simulators that have sent a long message, until they depart."""
        self._gives_back_at = math.inf
        """When freed memory is to be given back, by the inbox's clock."""
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def listen(self, host: str = "127.0.0.1", port: int = 5004, security: PortSecurity | None = None) -> int:
        """Opens a port to which any number of simulators may attach. Returns the port, chosen if 0 was given.

        security: TLS, and who may call; None admits every caller, without encryption.

        Raises:
            PortInUse: another process listens there.
            BridgeError: the address cannot be bound.
        """
        endpoint = Endpoint(
            host,
            port,
            self._inbox,
            capacity=self._settings.max_attached,
            security=security,
            make_relayed=relayed_call,
        )
        self._listeners.add(endpoint)
        return endpoint.port

    def launch(self, command: Command, count: int = 1) -> list[int]:
        """Starts programs, in processes with a port each or in this process. Returns their numbers; does not wait.

        Raises:
            LaunchError: the system refuses to start it, or it cannot run in this process and must.
            PortInUse: a port counted from ``base_port`` is taken.
        """
        isolated = is_isolated(command, count, self._settings.isolate)
        self._listeners.stop_waiting()
        numbers = [self._connections.take_number() for _ in range(count)]
        for number in numbers:
            if isolated:
                self._connections.open(number, self._supervisor.start(number, command))
            else:
                hosted = self._supervisor.host(number, command)
                self._connections.open(number, hosted, peer=hosted.simulator.peer)
        return numbers

    def receive(self, timeout_s: float) -> list[Tick | Departure]:
        """Returns everything that waits. Blocks until something does; empty if nothing came in time.

        Raises:
            DeclarationError: a launched simulator declares a behavior that cannot be served.
            LaunchError: a launched program never came to a first step, or no simulator ever attached.
            SimulatorLost: a launched simulator is gone and may not be started again, or the last attached
                one left and no other came.
        """
        began = self._inbox.clock.read()
        if began >= self._gives_back_at:
            self._gives_back_at = math.inf
            freed_memory.give_back()
        self._timeouts.resume(began)
        until = began + timeout_s
        happened: list[Tick | Departure] = []
        while True:
            # The inbox comes first: a long update may have made the trainer late, not the simulators.
            happened += self._handle_events(until)
            now = self._inbox.clock.now()
            if not happened or self._timeouts.is_check_due(now):
                happened += self._check_timeouts(now)
            self._timeouts.read_until = now
            if happened or now >= until:
                departed = {each.simulator for each in happened if isinstance(each, Departure)}
                if not departed.isdisjoint(self._long_senders):
                    self._long_senders -= departed
                    self._gives_back_at = now + GIVE_BACK_AFTER_S
                return happened

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        """Answers a simulator's tick. Agents of behaviors that are left out do nothing.

        An answer to a simulator that departed after its tick is dropped, which is no error. If the answer
        cannot be written, the simulator is ended by the next ``receive``, like any other broken conversation.

        Raises:
            ValueError: it has no tick to answer, or not these agents.
        """
        connection = self._connections.answerable(simulator)
        if connection is None:
            return
        try:
            connection.reply(actions, timeout_s=self._settings.timeout_wait_s)
        except ValueError:
            raise
        except Exception as error:
            self._inbox.put(
                Rejected(connection, self._handler.internal_error(connection, "answering it", error))
            )

    def reset(self, simulator: int, records: Iterable[SideChannelRecord] = ()) -> None:
        """Answers a simulator's tick with RESET instead of actions, and with side channel records.

        All its agents begin new episodes without a word about the old ones: these are worth nothing, so unfinished
        segments must be dropped. Raises like ``reply``.
        """
        connection = self._connections.answerable(simulator)
        if connection:
            connection.outbox.put(records)
            connection.reset(timeout_s=self._settings.timeout_wait_s)

    def send(self, records: Iterable[SideChannelRecord], simulator: int | None = None) -> None:
        """Queues side channel records for the next reply to a simulator; if None, to everyone.

        Everyone means all simulators that have had the first reset; later ones get the greeting instead. A simulator
        that departed gets nothing, which is no error.

        Raises:
            ValueError: there never was a simulator of this number.
        """
        if simulator is None:
            recipients = [each for each in self._connections if each.is_greeted]
        else:
            recipient = self._connections.recipient(simulator)
            recipients = [recipient] if recipient else []
        records = list(records)
        for connection in recipients:
            connection.outbox.put(records)

    @property
    def simulators(self) -> Mapping[int, SimulatorInfo]:
        """The simulators that have introduced themselves, by number, until they depart."""
        return {
            each.number: SimulatorInfo(
                each.session.package_version,
                each.session.communication_version,
                each.session.capabilities,
                launched=each.origin.is_own,
            )
            for each in self._connections
            if each.session.communication_version
        }

    def reject(self, simulator: int, reason: str) -> None:
        """Refuses a simulator's tick for a reason that only the trainer can see; instead of ``reply``.

        The next ``receive`` treats it like any other broken conversation.
        """
        connection = self._connections.answerable(simulator)
        if connection:
            self._inbox.put(Rejected(connection, reason))

    def close(self) -> None:
        """Ends all conversations and launched processes, and frees the ports. May be called again."""
        if self._closed:
            return
        self._closed = True
        for event in [*self._left, *self._left_long]:
            self._inbox.put(event)
        for origin in self._connections.origins():
            origin.close()
        try:
            _shut_down(self._connections, self._inbox, self._settings.shutdown_grace_s)
        finally:
            self._supervisor.stop(self._connections.origins())
            self._listeners.stop()

    def _handle_events(self, until: float) -> list[Tick | Departure]:
        """Handles short events for a while, or else long messages, one at least. The others wait until the next call.

        The two kinds take turns, so the sender of a short message waits for one long message at most.
        """
        for event in self._waiting_events(until):
            if isinstance(event, HangUp) and event.call in self._left_long:
                self._left_long.remove(event.call)  # nobody is there to be answered
            if isinstance(event, Call) and isinstance(event.data, bytes) and len(event.data) > LONG_MESSAGE:
                self._left_long.append(event)
            else:
                self._left.append(event)
        happened: list[Tick | Departure] = []
        enough = time.monotonic() + HANDLING_S
        is_turn_of_long, self._is_turn_of_long = self._is_turn_of_long and bool(self._left_long), False
        while self._left and not is_turn_of_long and not (happened and time.monotonic() >= enough):
            happened += self._handler.handle(self._left.popleft())
        if happened:
            self._is_turn_of_long = True
            return happened
        while self._left_long:
            happened += self._handler.handle(self._left_long.popleft())
            if time.monotonic() >= enough:
                break
        self._long_senders.update(each.simulator for each in happened)
        return happened

    def _waiting_events(self, until: float) -> list[Event]:
        """Returns all events in the inbox. Blocks for the first of them, at most until the next deadline, unless some
        that were read before are left."""
        event = self._inbox.get_ready()
        if event is None and not (self._left or self._left_long):
            wait_s = self._timeouts.next_deadline(until) - self._inbox.clock.read()
            with suppress(Empty):
                event = self._inbox.get(timeout=max(0.0, wait_s))
        events: list[Event] = []
        enough = time.monotonic() + READING_S
        while event is not None:
            events.append(event)
            event = self._inbox.get_ready() if time.monotonic() < enough else None
        return events

    def _check_timeouts(self, now: float) -> list[Tick | Departure]:
        """Ends overdue conversations. Raises if no simulator is attached for too long."""
        if self._left or self._left_long or not self._timeouts.is_inbox_drained(now):
            return []
        departures: list[Tick | Departure] = [
            self._handler.end(connection, reason, hangs=hangs)
            for connection, reason, hangs in self._timeouts.lost(now)
        ]
        self._listeners.check_timeout(now, self._handler.last_departure)
        return departures


def _shut_down(connections: Connections, inbox: Inbox, grace_s: float) -> None:
    """Ends all conversations by status 400, and waits a while for simulators that owe the next message."""
    owing: set[Connection | None] = set()
    for connection in connections:
        underway = connection.session.awaited not in (Awaited.INTRODUCTION, Awaited.NOTHING)
        told = connection.send_stop()
        if underway and connection.origin.is_leaving(told=told):
            owing.add(connection)
    until = time.monotonic() + grace_s
    while (left := until - time.monotonic()) > 0:
        try:
            event = inbox.get(timeout=left if owing else 0.0)
        except Empty:
            return
        owing.discard(_released(event, connections))


def _released(event: object, connections: Connections) -> Connection | None:
    """Returns the connection that an event releases: it was told to stop, or its process ended."""
    match event:
        case Exit(endpoint):
            return connections.by_source(endpoint)
        case HangUp(call):
            return connections.by_source(call.peer)
        case Call() as call:
            call.answer(STOP_MESSAGE)
            return connections.by_source(call.peer)
    return None
