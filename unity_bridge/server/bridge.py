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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Self

from unity_bridge.errors import LaunchError, SimulatorLost, WireError
from unity_bridge.programs.executables import Command
from unity_bridge.programs.launched_process import Exit, LaunchedProcess, LaunchPlan, RestartBudget
from unity_bridge.programs.program import stop_programs
from unity_bridge.server.connection import Connection
from unity_bridge.server.connections import Connections
from unity_bridge.server.events import Departure, SimulatorInfo, Tick
from unity_bridge.server.listeners import Listeners
from unity_bridge.server.outbox import Outbox
from unity_bridge.server.session import (
    STOP_MESSAGE,
    Awaited,
    Reply,
    Restarted,
    Session,
    Step,
    Stopped,
    is_introduction,
)
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.server.shutdown import shut_down
from unity_bridge.side_channels import SideChannelRecord, engine_records
from unity_bridge.steps import ActionBatch
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.transport import peers
from unity_bridge.transport.endpoint import Call, Endpoint, HangUp, readable
from unity_bridge.transport.inbox import Inbox
from unity_bridge.untrusted_text import quoted, version_text

__all__ = ["Bridge", "BridgeSettings", "Departure", "SimulatorInfo", "Tick"]

LOGGER = logging.getLogger(__name__)

TRACEBACK_S = 0.5
"""How long a launched simulator that hangs may take to say where."""

EXIT_WAIT_S = 1.0
"""How long a launched simulator that hung up or said goodbye may take to exit and tell its exit code."""

READING_S = 0.05
"""How long events are gathered before those that came are acted on, however many more there are: a thousand
simulators that wait take half of it."""

BUSY_GRACE_S = 5.0
"""How long reading may go on without an end before who is late is called silent all the same."""

CHECK_INTERVAL_S = 1.0
"""How often we look whether those that owe a message, and have for as long, are still there."""

LOG_WAIT_AFTER_S = 5.0
"""How long a simulator may owe a message before it is said that we wait for it."""

MAX_LOGGED_INTRODUCTIONS = 1000
"""How often it is said that somebody has introduced itself; a loop of strangers must not fill the log."""

STRANGER_S = 1.0
"""How long a stranger is one: to find out whose a connection is takes a millisecond or more."""

_MAX_STRANGERS = 1024

_ONE_CALL_AT_A_TIME = (
    "expected no other call before the last one is answered; two simulators in one process must open "
    "channels of their own (in Python: the option grpc.use_local_subchannel_pool)"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Rejected:
    """We want no more of a simulator."""

    connection: Connection
    reason: str


_Event = Call | HangUp | Exit | _Rejected


class Bridge:
    """A context manager that owns the ports, the conversations and the launched processes."""

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._inbox = Inbox()
        self._run_logs = settings.run_logs or Path(tempfile.mkdtemp(prefix="run_logs-"))
        self._connections = Connections()
        self._listeners = Listeners(settings.timeout_wait_s)
        self._last_departure = ""
        self._throttled = ThrottledLogger(LOGGER)
        self._working_commands: set[Command] = set()
        """Programs of which a simulator has stepped: who dies while it starts up is no proof that they cannot."""
        self._busy_since: float | None = None
        """Since when the inbox was never seen empty, as if nothing had been done but reading it."""
        self._read_until = 0.0
        self._check_at = 0.0
        self._strangers: dict[tuple[int, str], float] = {}
        """Ports and those who have no business there, and until when that need not be found out again."""
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
        self._listeners.add(endpoint)
        return endpoint.port

    def launch(self, command: Command, count: int = 1) -> list[int]:
        """Starts programs, each with a port of its own. Returns their numbers; does not wait for them.

        Raises:
            LaunchError: the system refuses to start it.
            PortInUse: a port counted from ``base_port`` is taken.
        """
        self._run_logs.mkdir(parents=True, exist_ok=True)
        self._listeners.stop_waiting()
        numbers = [self._connections.take_number() for _ in range(count)]
        for number in numbers:
            self._start(self._plan(number, command).start())
        return numbers

    def receive(self, timeout_s: float) -> list[Tick | Departure]:
        """Everything that waits. Blocks until something does; empty if nothing came in time.

        Raises:
            LaunchError: a launched program never came to a first step, or nobody ever attached.
            SimulatorLost: a launched simulator is gone and may not be started again, or the last attached
                one left and no other came.
        """
        began = time.monotonic()
        if self._busy_since is not None:
            self._busy_since += began - self._read_until
        until = began + timeout_s
        happened: list[Tick | Departure] = []
        while True:
            # What is in the inbox comes first: a long update may have made us late, not the simulators.
            for event in self._waiting_events(until):
                happened += self._handle(event)
            happened += self._check_timeouts()
            self._read_until = time.monotonic()
            if happened or self._read_until >= until:
                return happened

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        """Answers a simulator's tick. Agents of behaviors that are left out do nothing.

        A simulator that departed after its tick is answered in vain, which is no error. One whose answer cannot
        be written is ended by the next ``receive``, like any other broken conversation.

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
            self._inbox.put(_Rejected(connection, self._internal_error(connection, "answering it", error)))

    def reset(self, simulator: int, records: Iterable[SideChannelRecord] = ()) -> None:
        """Answers a simulator's tick with RESET instead of actions, and with side channel records.

        All its agents begin new episodes without a word about the old ones: these are worth nothing, and who
        keeps their unfinished segments must drop them. Raises like ``reply``.
        """
        connection = self._connections.answerable(simulator)
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
            recipients = [each for each in self._connections if each.is_greeted]
        else:
            recipient = self._connections.recipient(simulator)
            recipients = [recipient] if recipient else []
        records = list(records)
        for connection in recipients:
            connection.outbox.put(records)

    @property
    def simulators(self) -> Mapping[int, SimulatorInfo]:
        """Those who have introduced themselves, by number, until they depart."""
        return {
            each.number: SimulatorInfo(
                each.session.package_version,
                each.session.communication_version,
                each.session.capabilities,
                launched=each.launched is not None,
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
            self._inbox.put(_Rejected(connection, reason))

    def close(self) -> None:
        """Takes leave of every simulator, ends launched processes, frees the ports. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            shut_down(self._connections, self._inbox, self._settings.shutdown_grace_s)
        finally:
            launched = self._connections.launched_processes()
            stop_programs([each.program for each in launched], grace_s=self._settings.shutdown_grace_s)
            self._listeners.stop()
            for each in launched:
                each.endpoint.stop()
            if self._settings.run_logs is None:
                shutil.rmtree(self._run_logs, ignore_errors=True)

    def _waiting_events(self, until: float) -> list[_Event]:
        """Everything in the inbox; blocks for the first until then or until somebody's silence is a fact."""
        events: list[_Event] = []
        try:
            events.append(self._inbox.get(timeout=max(0.0, self._next_deadline(until) - time.monotonic())))
            enough = time.monotonic() + READING_S
            while time.monotonic() < enough:
                events.append(self._inbox.get(timeout=0.0))
        except Empty:
            pass
        return events

    def _next_deadline(self, until: float) -> float:
        deadlines = [self._listeners.deadline, *(each.deadline for each in self._connections)]
        known = [deadline for deadline in deadlines if deadline is not None]
        return min([until, *known, self._check_at]) if known else until

    def _handle(self, event: _Event) -> list[Tick | Departure]:
        match event:
            case Call():
                return self._on_call(event)
            case HangUp(call):
                return self._on_hang_up(call)
            case Exit(endpoint):
                connection = self._connections.by_endpoint(endpoint)
                return [self._end(connection, connection.end_reason)] if connection else []
            case _Rejected(connection, reason):
                return self._on_rejection(connection, reason)

    def _on_rejection(self, connection: Connection, reason: str) -> list[Tick | Departure]:
        if connection not in self._connections:
            return []
        connection.refuse(reason)
        return [self._end(connection, reason)]

    def _on_call(self, call: Call) -> list[Tick | Departure]:
        """Hears a call, if it is known or shown whose it is."""
        if call.endpoint in self._listeners:
            connection = self._connections.by_peer(call.peer)
            if (
                connection is None
                and self._connections.has_departed(call.peer)
                and not is_introduction(call.data)
            ):
                call.answer(STOP_MESSAGE)
                return []
            return self._on_message(connection or self._accept(call.peer), call)
        connection = self._connections.by_endpoint(call.endpoint)
        if connection is None:  # of a program that we gave up
            call.answer(STOP_MESSAGE)
            return []
        if connection.peer != call.peer:
            return self._on_new_caller(connection, call)
        return self._on_message(connection, call)

    def _on_new_caller(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        """Somebody new at a launched program's port: the program, or a stranger, who shall not be heard.

        Who is shown to be the program speaks for it. Where nobody can tell, the first to introduce itself does,
        until its connection ends.
        """
        assert connection.launched is not None
        port, pid = call.endpoint.port, connection.launched.program.pid
        if time.monotonic() < self._strangers.get((port, call.peer), 0.0):
            self._refuse_stranger(connection, call)
            return []
        is_verified = peers.belongs_to_process(call.peer, port, pid)
        if not is_verified and (self._has_live_peer(connection) or not is_introduction(call.data)):
            self._remember_stranger(port, call.peer)
            self._refuse_stranger(connection, call)
            return []
        if connection.is_verified and connection.owed_actions:
            call.refuse(f"{connection.name}: {_ONE_CALL_AT_A_TIME}")
            return []
        happened: list[Tick | Departure] = []
        if is_verified and connection.peer and not connection.is_verified:
            connection.refuse("another process introduced itself, and it is the one that was started")
            happened.append(self._depart(connection, "a stranger spoke in its place until now"))
            connection = self._start(connection.launched)
        connection.peer, connection.is_verified = call.peer, is_verified
        return happened + self._on_message(connection, call)

    def _has_live_peer(self, connection: Connection) -> bool:
        """Whether somebody speaks for a launched program, and is still there."""
        if not connection.peer or connection.launched is None:
            return False
        return peers.is_connected(connection.peer, connection.launched.endpoint.port) is not False

    def _remember_stranger(self, port: int, peer: str) -> None:
        if len(self._strangers) >= _MAX_STRANGERS:
            self._strangers.clear()
        self._strangers[port, peer] = time.monotonic() + STRANGER_S

    def _refuse_stranger(self, connection: Connection, call: Call) -> None:
        call.refuse("this port is for a program that the trainer started, and its place is taken")
        self._throttled.log(
            ("stranger", connection.number),
            f"{connection.name}: somebody else ({readable(call.peer)}) speaks at its port, and is refused",
        )

    def _on_message(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        if connection.owed_actions:
            call.refuse(f"{connection.name}: {_ONE_CALL_AT_A_TIME}")
            return []
        connection.last_call = call
        try:
            message = connection.session.receive(call.data)
        except WireError as error:
            return self._refuse(connection, call, str(error))
        except Exception as error:
            return self._refuse(
                connection, call, self._internal_error(connection, "reading its message", error)
            )
        match message:
            case Step(new_specs, batches, messages, replaced):
                connection.owed_actions = True
                self._note_first_step(connection)
                connection.deadline = None
                self._connections.note_tick(connection)
                return [Tick(connection.number, new_specs, batches, messages, replaced)]
            case Reply(data):
                call.answer(data)
                connection.expect_message(self._settings.timeout_wait_s)
                self._log_introduction(connection)
                return []
            case Stopped():
                call.answer(STOP_MESSAGE)
                return self._on_conversation_end(connection, "stopped by itself (status 400)")
            case Restarted():
                return self._restart_conversation(connection, call)

    def _log_introduction(self, connection: Connection) -> None:
        session = connection.session
        if session.awaited is not Awaited.CONFIRMATION:
            return
        version = version_text(session.package_version) if session.package_version else "(none)"
        self._throttled.log(
            "introduction",
            f"Connected to Unity environment with package version {version} "
            f"and communication version {version_text(session.communication_version)}",
            most=MAX_LOGGED_INTRODUCTIONS,
            level=logging.INFO,
        )
        if "baseRLCapabilities" not in session.capabilities:
            self._throttled.log(
                "capabilities",
                f"{connection.name} does not say that it can do what every simulator must: "
                "its package may be too old for this trainer",
            )

    def _refuse(self, connection: Connection, call: Call, why: str) -> list[Tick | Departure]:
        call.refuse(f"{connection.name}: {why}")
        connection.session.close()
        return [self._end(connection, why)] if connection in self._connections else []

    def _internal_error(self, connection: Connection, doing: str, error: Exception) -> str:
        """Why a simulator is ended that met a mistake of ours; the log tells where it was made."""
        what = f"{doing} failed in the trainer: {type(error).__name__}: {quoted(str(error))}"
        self._throttled.log(type(error).__name__, f"{connection.name}: {what}", error=error)
        return what

    def _note_first_step(self, connection: Connection) -> None:
        if connection.has_stepped:
            return
        connection.has_stepped = True
        if connection.launched is not None:
            self._working_commands.add(connection.launched.plan.command)

    def _on_hang_up(self, call: Call) -> list[Tick | Departure]:
        connection = self._connections.by_endpoint(call.endpoint) or self._connections.by_peer(call.peer)
        if connection is None or connection.last_call is not call:
            return []
        happened = self._on_conversation_end(connection, "closed its connection while it waited for a reply")
        self._connections.forget_peer(call.peer)
        return happened

    def _check_timeouts(self) -> list[Tick | Departure]:
        """Ends conversations whose time is up. Raises if nobody is attached for too long."""
        now = time.monotonic()
        if not self._is_inbox_drained(now):
            return []
        departures: list[Tick | Departure] = []
        for connection in self._connections:
            if connection.is_overdue(now):
                hangs = not connection.end_reason
                reason = connection.end_reason or self._timeout_reason(connection)
                departures.append(self._end(connection, reason, hangs=hangs))
        if now >= self._check_at:
            self._check_at = now + CHECK_INTERVAL_S
            departures += self._check_waiting(now)
        self._listeners.check_timeout(now, self._last_departure)
        return departures

    def _check_waiting(self, now: float) -> list[Tick | Departure]:
        """Ends those that attached and are gone, where the system tells; says for whom we wait for long."""
        departures: list[Tick | Departure] = []
        table: peers.SocketTable | None = None
        for connection in self._connections:
            waited_s = connection.waited_s(now, self._settings.timeout_wait_s)
            if waited_s < CHECK_INTERVAL_S:
                continue
            if waited_s >= LOG_WAIT_AFTER_S and not connection.is_wait_logged:
                self._log_wait(connection, waited_s)
            if connection.launched is None and connection.last_call is not None:
                table = peers.read_sockets() if table is None else table
                port = connection.last_call.endpoint.port
                is_gone = peers.is_connected(connection.peer, port, table) is False
                connection.times_missing = connection.times_missing + 1 if is_gone else 0
                if connection.times_missing > 1:  # the table may miss one that stands, but not twice
                    owed = connection.session.awaited.value
                    departures.append(self._end(connection, f"closed its connection; it owed {owed}"))
        return departures

    def _log_wait(self, connection: Connection, waited_s: float) -> None:
        connection.is_wait_logged = True
        if connection.session.awaited is not Awaited.INTRODUCTION:  # programs may take their time to start
            owed = connection.session.awaited.value
            self._throttled.log(
                ("awaited", connection.number),
                f"waiting for {connection.name} for {waited_s:.0f} s: it owes {owed}",
            )

    def _is_inbox_drained(self, now: float) -> bool:
        """Whether who has not been heard has said nothing: all is read, or we have read for long enough."""
        if self._inbox.empty():
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        return self._busy_since is None or now >= self._busy_since + BUSY_GRACE_S

    def _timeout_reason(self, connection: Connection) -> str:
        waited = f"{self._settings.timeout_wait_s:g} s"
        return f"silent for {waited} (timeout_wait); it owes {connection.session.awaited.value}"

    def _on_conversation_end(self, connection: Connection, why: str) -> list[Tick | Departure]:
        """The conversation is over. A process of ours gets a moment to exit and so tell its exit code."""
        connection.session.close()
        if connection.launched is None:
            return [self._end(connection, why)] if connection in self._connections else []
        connection.end_reason = why
        connection.deadline = time.monotonic() + EXIT_WAIT_S
        return []

    def _end(self, connection: Connection, why: str, *, hangs: bool = False) -> Departure:
        """Nothing more will come: forgets who attached, starts again what was launched.

        Raises:
            LaunchError: launched, and no simulator of its program ever came to its first step.
            SimulatorLost: launched, and its restarts are used up.
        """
        if connection.launched is not None:
            return self._restart_process(connection, connection.launched, why, hangs=hangs)
        connection.session.close()
        departure = self._depart(connection, why)
        if not list(self._connections):
            self._listeners.wait_for_next()
        return departure

    def _depart(self, connection: Connection, why: str, *, restarted: bool = False) -> Departure:
        self._connections.remove(connection)
        self._last_departure = f"{connection.name}: {why}"
        return Departure(connection.number, self._last_departure, restarted)

    def _restart_conversation(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        """The simulator introduced itself once more: another conversation on the same line."""
        happened: list[Tick | Departure] = []
        if connection in self._connections:
            happened.append(self._depart(connection, "introduced itself anew"))
        if connection.launched is None:
            return happened + self._on_message(self._accept(call.peer), call)
        successor = self._start(connection.launched)
        successor.peer, successor.is_verified = connection.peer, connection.is_verified
        return happened + self._on_message(successor, call)

    def _accept(self, peer: str) -> Connection:
        """A new conversation with one that attached."""
        self._listeners.stop_waiting()
        number = self._connections.take_number()
        connection = self._new_connection(number, f"simulator {number} ({readable(peer)})")
        connection.peer = peer
        self._connections.add(connection)
        return connection

    def _start(self, launched: LaunchedProcess) -> Connection:
        """A new conversation with a process of ours."""
        number, env = launched.plan.number, launched.plan.command.env
        connection = self._new_connection(number, f"simulator {number} ({env}, pid {launched.program.pid})")
        connection.launched = launched
        self._connections.add(connection)
        return connection

    def _new_connection(self, number: int, name: str) -> Connection:
        settings = self._settings
        outbox = Outbox()
        session = Session(
            seed=(settings.seed + number) % 2**31,
            num_areas=settings.num_areas,
            greeting=lambda: self._greeting(number, outbox),
        )
        return Connection(number, name, session, time.monotonic() + settings.timeout_wait_s, outbox=outbox)

    def _greeting(self, number: int, outbox: Outbox) -> list[SideChannelRecord]:
        """What a simulator hears with its first reset: ours, and then what is queued for it already."""
        engine = self._settings.engine
        ours = [*(engine_records(engine) if engine else ()), *self._settings.greeting(number)]
        outbox.put_first(ours)
        return outbox.take()

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

    def _restart_process(
        self, connection: Connection, launched: LaunchedProcess, why: str, *, hangs: bool
    ) -> Departure:
        was_killed, why = launched.program.was_killed, launched.exit_report(why)
        if hangs:
            launched.program.dump_traceback(TRACEBACK_S)
        log_tail = launched.log_tail()
        departure = self._depart(
            connection, f"{why}; starting it again{log_tail if launched.has_output() else ''}", restarted=True
        )
        self._connections.forget_process(launched)
        launched.end(self._settings.shutdown_grace_s)
        # A program that ends by itself before it ever worked would do so again; who was killed says nothing of it.
        if launched.plan.command not in self._working_commands and not was_killed:
            raise LaunchError(f"{connection.name}: {why}, before its first step{log_tail}")
        refusal = launched.plan.restarts.spend(time.monotonic())
        if refusal:
            raise SimulatorLost(f"{connection.name}: {why}; {refusal}{log_tail}")
        self._start(launched.plan.start(again=True))
        return departure
