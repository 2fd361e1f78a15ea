"""The bridge: every simulator, launched or attached, behind one receive and one reply.

Threads, where there are any, end at the inbox. Everything here runs in the caller's thread, so no lock guards
anything. That includes decoding: done in gRPC's threads it was no faster with 1 or 8 simulators of 12 or 96 agents,
and simulators that wait together were found apart (1.4 to 1.6 ticks per receive instead of 1.8 to 4.2).
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from unity_bridge.connection import Connection
from unity_bridge.endpoint import Call, Endpoint, HangUp
from unity_bridge.errors import BridgeError, LaunchError, SimulatorLost, WireError
from unity_bridge.inbox import Inbox
from unity_bridge.launched import Exit, Launched, LaunchPlan
from unity_bridge.launcher import Command, RestartBudget, stop_programs
from unity_bridge.outbox import Outbox
from unity_bridge.session import STOP_MESSAGE, Awaited, Goodbye, Reintroduction, Reply, Session, Step
from unity_bridge.side_channels import EngineSettings, SideChannelRecord, engine_records
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

LOGGER = logging.getLogger(__name__)

EXIT_WAIT_S = 1.0
"""How long a launched simulator that hung up or said goodbye may take to exit and tell its exit code."""

_ONE_CALL_AT_A_TIME = (
    "expected no other call before the last one is answered; two simulators in one process must open "
    "channels of their own (in Python: the option grpc.use_local_subchannel_pool)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Tick:
    """One message of one simulator, which now waits for ``Bridge.reply``."""

    simulator: int

    new_specs: Mapping[str, BehaviorSpec]
    """Behaviors that this simulator describes for the first time, by full id (``Ball?team=0``)."""

    steps: Mapping[str, StepBatch]
    """Behaviors with at least one row, by full id in alphabetical order. May be empty."""

    messages: tuple[SideChannelRecord, ...] = ()
    """What it said on side channels, in order."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A conversation is over: its agents' unfinished trajectories are worth nothing.

    A launched simulator that was started again keeps its number and begins anew, with new specs and agents.
    """

    simulator: int

    reason: str
    """One line that names the simulator."""


@dataclass(frozen=True, slots=True)
class SimulatorInfo:
    """How a simulator introduced itself."""

    package_version: str
    """Of ML-Agents in Unity; empty if it names none."""

    communication_version: str

    capabilities: frozenset[str]
    """Names of the flags that it set, such as ``trainingAnalytics``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """What holds for every simulator."""

    seed: int
    """Simulator number n gets seed + n for its own randomness."""

    num_areas: int = 1
    """Copies of the training area that each simulator shall make."""

    timeout_wait_s: float = 60.0
    """How long a simulator may take for any message that it owes, and how long nobody may be attached."""

    engine: EngineSettings | None = None
    """Sent with the first reset; None sends nothing."""

    greeting: Callable[[int], Sequence[SideChannelRecord]] = lambda simulator: ()
    """What simulator number n hears on side channels with its first reset, after the engine's settings. Asked
    whenever that is due: a simulator that was started again is greeted again."""

    base_port: int | None = None
    """Launched simulator number n gets port base_port + n; None lets the system choose each."""

    run_logs: Path | None = None
    """Where programs' output goes, in files Player-<number>.log. None: a folder that close() removes."""

    max_lifetime_restarts: int = 10
    """Of each launched simulator; −1 is no limit."""

    restarts_rate_limit_n: int = 1
    """Restarts of each launched simulator in one period; −1 is no limit."""

    restarts_rate_limit_period_s: float = 60.0

    max_attached: int = 1024
    """Simulators that may wait at an attach port at once."""

    shutdown_grace_s: float = 3.0
    """How long close() waits for simulators to take leave, and again for programs that are asked to end."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rejection:
    """We want no more of a simulator."""

    connection: Connection
    reason: str


_Event = Call | HangUp | Exit | _Rejection


class Bridge:
    """A context manager that owns the ports, the conversations and the launched processes."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._inbox = Inbox()
        self._run_logs = settings.run_logs or Path(tempfile.mkdtemp(prefix="run_logs-"))
        self._connections: dict[int, Connection] = {}
        self._by_endpoint: dict[Endpoint, Connection] = {}
        self._by_peer: dict[str, Connection] = {}
        self._attach_points: list[Endpoint] = []
        self._attach_deadline: float | None = None
        self._last_departure = ""
        self._next_number = 0
        self._unanswerable: set[int] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def listen(self, host: str = "127.0.0.1", port: int = 5004) -> int:
        """Opens a port to which any number of simulators may attach. Returns the port, chosen if 0 was given.

        Raises:
            PortInUse: another process listens there.
            BridgeError: the address cannot be bound.
        """
        endpoint = Endpoint(host, port, self._inbox, capacity=self._settings.max_attached)
        self._attach_points.append(endpoint)
        self._attach_deadline = time.monotonic() + self._settings.timeout_wait_s
        return endpoint.port

    def launch(self, command: Command, count: int = 1) -> list[int]:
        """Starts programs, each with a port of its own. Returns their numbers; does not wait for them.

        Raises:
            LaunchError: the system refuses to start it.
            PortInUse: a port counted from ``base_port`` is taken.
        """
        self._run_logs.mkdir(parents=True, exist_ok=True)
        self._attach_deadline = None
        numbers = [self._take_number() for _ in range(count)]
        for number in numbers:
            self._meet(self._plan(number, command).start())
        return numbers

    def receive(self, timeout_s: float) -> list[Tick | Departure]:
        """Everything that waits. Blocks until something does; empty if nothing came in time.

        Raises:
            LaunchError: a launched simulator never came to its first step, or none ever attached.
            SimulatorLost: a launched simulator is gone and may not be started again, or the last attached
                one left and no other came.
        """
        until = time.monotonic() + timeout_s
        happened: list[Tick | Departure] = []
        while True:
            # What is in the inbox comes first: a long update may have made us late, not the simulators.
            for event in self._waiting_events(until):
                happened += self._handle(event)
            happened += self._judge_silence()
            if happened or time.monotonic() >= until:
                return happened

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        """Answers a simulator's tick. Agents of behaviors that are left out do nothing.

        A simulator that departed after its tick is answered in vain, which is no error.

        Raises:
            ValueError: it has no tick to answer, or not these agents.
        """
        connection = self._answerable(simulator)
        if connection:
            connection.reply(actions, timeout_s=self._settings.timeout_wait_s)

    def reset(self, simulator: int, records: Iterable[SideChannelRecord] = ()) -> None:
        """Answers a simulator's tick with RESET instead of actions, and with side channel records.

        All its agents begin new episodes without a word about the old ones: these are worth nothing, and who
        keeps their unfinished pieces must drop them. Raises like ``reply``.
        """
        connection = self._answerable(simulator)
        if connection:
            connection.outbox.put(records)
            connection.reset(timeout_s=self._settings.timeout_wait_s)

    def send(self, records: Iterable[SideChannelRecord], simulator: int | None = None) -> None:
        """Queues side channel records for the next reply to a simulator; if None, to everyone.

        Everyone is who has had the first reset: those who come later are greeted. A simulator that departed
        hears nothing, which is no error.

        Raises:
            ValueError: there never was a simulator of this number.
        """
        if simulator is None:
            records = list(records)
            for connection in self._connections.values():
                if connection.is_greeted:
                    connection.outbox.put(records)
        elif simulator in self._connections:
            self._connections[simulator].outbox.put(records)
        elif not 0 <= simulator < self._next_number:
            raise ValueError(f"there is no simulator {simulator}")

    @property
    def simulators(self) -> Mapping[int, SimulatorInfo]:
        """Those who have introduced themselves, by number, until they depart."""
        sessions = {number: each.session for number, each in self._connections.items()}
        return {
            number: SimulatorInfo(
                session.package_version, session.communication_version, session.capabilities
            )
            for number, session in sessions.items()
            if session.communication_version
        }

    def reject(self, simulator: int, reason: str) -> None:
        """Refuses a simulator's tick for a reason that only the trainer can see; instead of ``reply``.

        The next ``receive`` treats it like any other broken conversation.
        """
        if simulator in self._unanswerable:
            self._unanswerable.discard(simulator)
        else:
            self._inbox.put(_Rejection(self._connections[simulator], reason))

    def close(self) -> None:
        """Takes leave of every simulator, ends launched processes, frees the ports. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self._take_leave()
        finally:
            programs = [each.launched.program for each in self._by_endpoint.values() if each.launched]
            stop_programs(programs, grace_s=self._settings.shutdown_grace_s)
            for endpoint in (*self._attach_points, *self._by_endpoint):
                endpoint.stop()
            if self._settings.run_logs is None:
                shutil.rmtree(self._run_logs, ignore_errors=True)

    def _answerable(self, simulator: int) -> Connection | None:
        """Who waits for an answer; None if it departed meanwhile. ValueError if there never was a tick."""
        if simulator in self._unanswerable:
            self._unanswerable.discard(simulator)
            return None
        if simulator not in self._connections:
            raise ValueError(f"simulator {simulator} has no tick to answer")
        return self._connections[simulator]

    def _waiting_events(self, until: float) -> list[_Event]:
        """Everything in the inbox; blocks for the first until then or until somebody's silence is a fact."""
        events: list[_Event] = []
        try:
            events.append(self._inbox.get(timeout=max(0.0, self._nearest(until) - time.monotonic())))
            while True:
                events.append(self._inbox.get(timeout=0.0))
        except Empty:
            return events

    def _nearest(self, until: float) -> float:
        deadlines = [self._attach_deadline, *(each.deadline for each in self._connections.values())]
        return min([until, *(deadline for deadline in deadlines if deadline is not None)])

    def _handle(self, event: _Event) -> list[Tick | Departure]:
        match event:
            case Call():
                return self._hear(self._speaker(event), event)
            case HangUp(call):
                return self._hang_up(call)
            case Exit(endpoint):
                connection = self._by_endpoint.get(endpoint)
                return [self._end(connection, connection.farewell)] if connection else []
            case _Rejection(connection, reason):
                return self._break_off(connection, reason)

    def _break_off(self, connection: Connection, reason: str) -> list[Tick | Departure]:
        if self._connections.get(connection.number) is not connection:
            return []
        connection.refuse(reason)
        return [self._end(connection, reason)]

    def _speaker(self, call: Call) -> Connection | None:
        """Whose call it is; None for a program that we gave up."""
        if call.endpoint not in self._attach_points:
            return self._by_endpoint.get(call.endpoint)
        return self._by_peer.get(call.peer) or self._welcome(call.peer)

    def _hear(self, connection: Connection | None, call: Call) -> list[Tick | Departure]:
        if connection is None:
            call.answer(STOP_MESSAGE)
            return []
        if connection.owed_actions:
            call.refuse(f"{connection.name}: {_ONE_CALL_AT_A_TIME}")
            return []
        connection.last_call = call
        try:
            message = connection.session.receive(call.data)
        except WireError as error:
            call.refuse(f"{connection.name}: {error}")
            return [self._end(connection, str(error))]
        match message:
            case Step(new_specs, batches, messages):
                connection.owed_actions = connection.has_stepped = True
                connection.deadline = None
                self._unanswerable.discard(connection.number)
                return [Tick(connection.number, new_specs, batches, messages)]
            case Reply(data):
                call.answer(data)
                connection.expect_message(self._settings.timeout_wait_s)
                _log_introduction(connection.session)
                return []
            case Goodbye():
                call.answer(STOP_MESSAGE)
                return self._leave(connection, "stopped by itself (status 400)")
            case Reintroduction():
                return self._begin_anew(connection, call)

    def _hang_up(self, call: Call) -> list[Tick | Departure]:
        connection = self._by_endpoint.get(call.endpoint) or self._by_peer.get(call.peer)
        if connection is None or connection.last_call is not call:
            return []
        self._by_peer.pop(call.peer, None)
        return self._leave(connection, "closed its connection while it waited for a reply")

    def _judge_silence(self) -> list[Tick | Departure]:
        """Ends conversations whose time is up. Raises if nobody is attached for too long."""
        now = time.monotonic()
        if not self._inbox.empty():
            return []
        departures: list[Tick | Departure] = []
        for connection in list(self._connections.values()):
            if connection.is_overdue(now):
                departures.append(self._end(connection, connection.farewell or self._silence(connection)))
        if self._attach_deadline is not None and now >= self._attach_deadline:
            self._attach_deadline = None
            raise self._loneliness()
        return departures

    def _silence(self, connection: Connection) -> str:
        waited = f"{self._settings.timeout_wait_s:g} s"
        return f"silent for {waited} (timeout_wait); it owes {connection.session.awaited.value}"

    def _loneliness(self) -> BridgeError:
        addresses = ", ".join(endpoint.address for endpoint in self._attach_points)
        waited = f"{self._settings.timeout_wait_s:g} s"
        if self._last_departure:
            return SimulatorLost(
                f"nobody attached to {addresses} within {waited} after the last one left; "
                f"that was {self._last_departure}"
            )
        return LaunchError(
            f"nobody attached to {addresses} within {waited} (timeout_wait): start a simulator, "
            "or press Play in the Unity Editor"
        )

    def _leave(self, connection: Connection, why: str) -> list[Tick | Departure]:
        """The conversation is over. A process of ours gets a moment to exit and so tell its exit code."""
        connection.session.close()
        if connection.launched is None:
            return [self._end(connection, why)] if connection.number in self._connections else []
        connection.farewell = why
        connection.deadline = time.monotonic() + EXIT_WAIT_S
        return []

    def _end(self, connection: Connection, why: str) -> Departure:
        """Nothing more will come: forgets who attached, starts again what was launched.

        Raises:
            LaunchError: launched, and never came to its first step.
            SimulatorLost: launched, and its restarts are used up.
        """
        if connection.launched is not None:
            return self._start_again(connection, connection.launched, why)
        connection.session.close()
        departure = self._depart(connection, why)
        if not self._connections:
            self._attach_deadline = time.monotonic() + self._settings.timeout_wait_s
        return departure

    def _depart(self, connection: Connection, why: str) -> Departure:
        del self._connections[connection.number]
        connection.deadline = None
        if connection.owed_actions:
            connection.owed_actions = False
            self._unanswerable.add(connection.number)
        self._last_departure = f"{connection.name}: {why}"
        return Departure(connection.number, self._last_departure)

    def _begin_anew(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        """The simulator introduced itself once more: another conversation on the same line."""
        happened: list[Tick | Departure] = []
        if connection.number in self._connections:
            happened.append(self._depart(connection, "introduced itself anew"))
        successor = self._meet(connection.launched) if connection.launched else self._welcome(call.peer)
        return happened + self._hear(successor, call)

    def _welcome(self, peer: str) -> Connection:
        """A new conversation with one that attached."""
        self._attach_deadline = None
        number = self._take_number()
        self._by_peer[peer] = self._converse(number, f"simulator {number} ({_readable(peer)})")
        return self._by_peer[peer]

    def _meet(self, launched: Launched) -> Connection:
        """A new conversation with a process of ours."""
        number, env = launched.plan.number, launched.plan.command.env
        connection = self._converse(number, f"simulator {number} ({env}, pid {launched.program.pid})")
        connection.launched = launched
        self._by_endpoint[launched.endpoint] = connection
        return connection

    def _converse(self, number: int, name: str) -> Connection:
        settings = self._settings
        seed = (settings.seed + number) % 2**31
        outbox = Outbox()
        session = Session(
            seed=seed, num_areas=settings.num_areas, greeting=lambda: self._greeting(number, outbox)
        )
        deadline = time.monotonic() + settings.timeout_wait_s
        self._connections[number] = Connection(number, name, session, deadline, outbox=outbox)
        return self._connections[number]

    def _greeting(self, number: int, outbox: Outbox) -> list[SideChannelRecord]:
        """What a simulator hears with its first reset: ours, and then what is queued for it already."""
        engine = self._settings.engine
        ours = [*(engine_records(engine) if engine else ()), *self._settings.greeting(number)]
        outbox.put_first(ours)
        return outbox.take()

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _plan(self, number: int, command: Command) -> LaunchPlan:
        settings = self._settings
        return LaunchPlan(
            number=number,
            command=command,
            port=0 if settings.base_port is None else settings.base_port + number,
            run_logs=self._run_logs,
            inbox=self._inbox,
            restarts=RestartBudget(
                lifetime=settings.max_lifetime_restarts,
                per_period=settings.restarts_rate_limit_n,
                period_s=settings.restarts_rate_limit_period_s,
            ),
        )

    def _start_again(self, connection: Connection, launched: Launched, why: str) -> Departure:
        why, last_words = launched.obituary(why), launched.last_words()
        departure = self._depart(connection, f"{why}; starting it again")
        del self._by_endpoint[launched.endpoint]
        launched.end(self._settings.shutdown_grace_s)
        if not connection.has_stepped:
            raise LaunchError(f"{connection.name}: {why}, before its first step{last_words}")
        refusal = launched.plan.restarts.spend(time.monotonic())
        if refusal:
            raise SimulatorLost(f"{connection.name}: {why}; {refusal}{last_words}")
        self._meet(launched.plan.start(again=True))
        return departure

    def _take_leave(self) -> None:
        """Answers everybody with status 400, and waits a while for those that owe the next message."""
        owing: set[Connection] = set()
        for connection in self._connections.values():
            underway = connection.session.awaited not in (Awaited.INTRODUCTION, Awaited.NOTHING)
            told = connection.tell_to_stop()
            if underway and (connection.launched or not told):
                owing.add(connection)
        until = time.monotonic() + self._settings.shutdown_grace_s
        while (left := until - time.monotonic()) > 0:
            try:
                owing -= self._released(self._inbox.get(timeout=left if owing else 0.0))
            except Empty:
                return

    def _released(self, event: _Event) -> set[Connection]:
        """Whom close() need not wait for any longer: told by status 400, or its process ended."""
        released: Connection | None = None
        match event:
            case Exit(endpoint):
                released = self._by_endpoint.get(endpoint)
            case HangUp(call):
                released = self._by_peer.get(call.peer)
            case Call() as call:
                call.answer(STOP_MESSAGE)
                released = self._by_peer.get(call.peer)
        return {released} if released else set()


def _log_introduction(session: Session) -> None:
    if session.awaited is Awaited.CONFIRMATION:
        LOGGER.info(
            "Connected to Unity environment with package version %s and communication version %s",
            session.package_version,
            session.communication_version,
        )


def _readable(peer: str) -> str:
    """``ipv6:%5B::1%5D:50123`` as ``[::1]:50123``."""
    return unquote(peer).partition(":")[2]
