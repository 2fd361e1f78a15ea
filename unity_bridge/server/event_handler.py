"""The handling of events from the inbox: the connection that each is of, and what the trainer is told."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from unity_bridge.errors import DeclarationError, WireError
from unity_bridge.programs.launched_process import Exit
from unity_bridge.server.callers import Caller, CallerCheck
from unity_bridge.server.connections import Connection, Connections
from unity_bridge.server.events import Departure, Tick
from unity_bridge.server.listeners import Listeners
from unity_bridge.server.origins import Attached
from unity_bridge.server.session import (
    STOP_MESSAGE,
    Awaited,
    Reply,
    Restarted,
    Step,
    Stopped,
    is_goodbye,
    is_introduction,
)
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.transport.endpoint import Call, HangUp, readable
from unity_bridge.transport.limits import most_connections
from unity_bridge.transport.relayed_calls import UNKNOWN_SESSION, RelayedCall, RelayedCalls
from unity_bridge.untrusted_text import harmless, quoted, version_text

LOGGER = logging.getLogger(__name__)

MAX_LOGGED_INTRODUCTIONS = 1000
"""How often it is logged that a simulator has introduced itself; a loop of restarts must not fill the log."""

MAX_LOGGED_REPORTS = 100
"""How often a relay's report on a simulator that ended is logged."""

_ONE_CALL_AT_A_TIME = (
    "expected no other call before the last one is answered; two simulators in one process must open "
    "channels of their own (in Python: the option grpc.use_local_subchannel_pool)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Rejected:
    """The event that the trainer wants no more of a simulator."""

    connection: Connection
    reason: str


Event = Call | HangUp | Exit | Rejected


class EventHandler:
    """Handles events and ends conversations, and returns the resulting ticks and departures for the trainer."""

    def __init__(
        self,
        settings: BridgeSettings,
        connections: Connections,
        listeners: Listeners,
    ) -> None:
        self._timeout_s = settings.timeout_wait_s
        self._connections = connections
        self._listeners = listeners
        self._callers = CallerCheck()
        self._relayed_calls = RelayedCalls(most_connections(settings.max_attached))
        self._throttled = ThrottledLogger(LOGGER)
        self.last_departure = ""
        """The reason of the latest departure."""

    def handle(self, event: Event) -> list[Tick | Departure]:
        """Acts on one event; returns what the trainer is to know of it.

        Raises:
            DeclarationError: a launched simulator declares a behavior that cannot be served.
            LaunchError, SimulatorLost: as ``end`` does.
        """
        match event:
            case Call():
                return self._on_call(event)
            case HangUp(call):
                return self._on_hang_up(call)
            case Exit(endpoint):
                connection = self._connections.by_source(endpoint)
                return [self.end(connection, connection.end_reason)] if connection else []
            case Rejected(connection, reason):
                return self._on_rejection(connection, reason)

    def end(self, connection: Connection, why: str, *, hangs: bool = False) -> Departure:
        """Ends a simulator from which nothing more will come, and starts it again if it was launched.

        Raises:
            LaunchError, SimulatorLost: as ``Origin.successor``.
        """
        connection.session.close()
        origin = connection.origin
        failure = origin.failure(why, hangs=hangs)
        departure = self._depart(connection, failure.reason + failure.news, restarted=bool(failure.news))
        self._connections.forget(origin)
        successor = origin.successor(connection.name, failure)
        if successor is not None:
            self._connections.open(connection.number, successor)
        elif not list(self._connections):
            self._listeners.wait_for_next()
        return departure

    def _on_rejection(self, connection: Connection, reason: str) -> list[Tick | Departure]:
        if connection not in self._connections:
            return []
        connection.refuse(reason)
        return [self.end(connection, reason)]

    def _on_call(self, call: Call) -> list[Tick | Departure]:
        """Reads a call, unless it is a late one or a stranger's."""
        connection = self._connections.by_source(call.endpoint)
        if connection is None and call.endpoint in self._listeners:
            if isinstance(call, RelayedCall):
                return self._on_relayed_call(call)
            connection = self._connections.by_source(call.peer)
            if (
                connection is None
                and self._connections.has_departed(call.peer)
                and not is_introduction(call.data)
            ):
                call.answer(STOP_MESSAGE)
                return []
            return self._on_message(connection or self._accept(call.peer), call)
        if connection is None:  # of a program that we gave up
            call.answer(STOP_MESSAGE)
            return []
        if connection.peer != call.peer:
            return self._on_new_caller(connection, call)
        return self._on_message(connection, call)

    def _on_relayed_call(self, call: RelayedCall) -> list[Tick | Departure]:
        """Reads an exchange of a relay once, however often it comes, and logs the report that came with it."""
        if call.report:
            self._throttled.log("relayed report", harmless(f"Relay: {call.report}"), most=MAX_LOGGED_REPORTS)
        if not self._relayed_calls.is_new(call):
            return []
        connection = self._connections.by_source(call.peer)
        if connection is None and not is_introduction(call.data):
            call.refuse(UNKNOWN_SESSION)
            return []
        happened = self._on_message(connection or self._accept(call.peer), call)
        connection = self._connections.by_source(call.peer)
        if connection is None:
            self._relayed_calls.keep_last(call)
        elif connection.last_call is call:  # else it was refused, and another waits
            self._relayed_calls.keep(call)
        return happened

    def _on_new_caller(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        """Takes or refuses a new connection at a launched program's port: the program's, or a stranger's.

        One that is shown to be the program's replaces any other. Where the system does not tell, the first connection
        with an introduction is taken for the program's until it ends.
        """
        caller = self._callers.identify(connection, call)
        if caller is Caller.STRANGER:
            self._refuse_stranger(connection, call)
            return []
        is_verified = caller is Caller.PROGRAM
        if connection.is_verified and connection.owed_actions:
            call.refuse(f"{connection.name}: {_ONE_CALL_AT_A_TIME}")
            return []
        happened: list[Tick | Departure] = []
        if is_verified and connection.peer and not connection.is_verified:
            connection.refuse("the program that the trainer started has connected, and takes this place")
            happened.append(self._depart(connection, "another process used its place until now"))
            connection = self._connections.open(connection.number, connection.origin)
        connection.peer, connection.is_verified = call.peer, is_verified
        return happened + self._on_message(connection, call)

    def _refuse_stranger(self, connection: Connection, call: Call) -> None:
        call.refuse("this port is for a program that the trainer started, and its place is taken")
        self._throttled.log(
            ("stranger", connection.number),
            f"{connection.name}: refused another process ({readable(call.peer)}) on its port",
        )

    def _on_message(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        if connection.owed_actions and connection.last_call and is_goodbye(call.data):
            # It was told to stop while it waited for us. The trainer will answer its tick in vain, as after a hang-up.
            connection.last_call.answer(STOP_MESSAGE)
            return self._on_goodbye(connection, call)
        if connection.owed_actions:
            call.refuse(f"{connection.name}: {_ONE_CALL_AT_A_TIME}")
            return []
        connection.last_call = call
        try:
            message = connection.session.receive(call.data)
        except WireError as error:
            if isinstance(error, DeclarationError) and connection.origin.is_own:
                call.refuse(f"{connection.name}: {error}")
                raise DeclarationError(f"{connection.name}: {error}") from error
            return self._refuse(connection, call, str(error))
        except Exception as error:
            return self._refuse(
                connection, call, self.internal_error(connection, "reading its message", error)
            )
        match message:
            case Step(new_specs, batches, messages, replaced):
                call.data = b""
                connection.owed_actions = True
                self._note_first_step(connection)
                connection.deadline = None
                self._connections.note_tick(connection)
                areas = connection.session.num_areas
                return [Tick(connection.number, new_specs, batches, messages, replaced, areas)]
            case Reply(data):
                call.answer(data)
                connection.expect_message(self._timeout_s)
                self._log_introduction(connection)
                return []
            case Stopped():
                return self._on_goodbye(connection, call)
            case Restarted():
                return self._restart_conversation(connection, call)

    def _on_goodbye(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        call.answer(STOP_MESSAGE)
        return self._on_conversation_end(connection, "stopped by itself (status 400)")

    def _log_introduction(self, connection: Connection) -> None:
        session = connection.session
        if session.awaited is not Awaited.CONFIRMATION:
            return
        self._throttled.log(
            "introduction",
            f"Connected to {_environment_of(connection)}",
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
        return [self.end(connection, why)] if connection in self._connections else []

    def internal_error(self, connection: Connection, doing: str, error: Exception) -> str:
        """Returns why a simulator is ended after an error of the trainer, and logs the traceback."""
        what = f"{doing} failed in the trainer: {type(error).__name__}: {quoted(str(error))}"
        self._throttled.log(type(error).__name__, f"{connection.name}: {what}", error=error)
        return what

    def _note_first_step(self, connection: Connection) -> None:
        if connection.has_stepped:
            return
        connection.has_stepped = True
        connection.origin.note_step()

    def _on_hang_up(self, call: Call) -> list[Tick | Departure]:
        connection = self._connections.caller(call)
        if connection is None or connection.last_call is not call:
            return []
        happened = self._on_conversation_end(connection, "closed its connection while it waited for a reply")
        self._connections.forget_peer(call.peer)
        return happened

    def _on_conversation_end(self, connection: Connection, why: str) -> list[Tick | Departure]:
        """Closes a conversation. A launched process gets a moment to exit and so tell its exit code."""
        connection.session.close()
        exit_wait_s = connection.origin.exit_wait_s
        if not exit_wait_s:
            return [self.end(connection, why)] if connection in self._connections else []
        connection.end_reason = why
        connection.deadline = connection.clock.now() + exit_wait_s
        return []

    def _depart(self, connection: Connection, why: str, *, restarted: bool = False) -> Departure:
        self._connections.remove(connection)
        self._relayed_calls.end(connection.peer)
        self.last_departure = f"{connection.name}: {why}"
        return Departure(connection.number, self.last_departure, restarted)

    def _restart_conversation(self, connection: Connection, call: Call) -> list[Tick | Departure]:
        """Begins another conversation on the connection of a simulator that introduced itself once more."""
        happened: list[Tick | Departure] = []
        if connection in self._connections:
            happened.append(self._depart(connection, "introduced itself again"))
        if not connection.origin.is_own:
            return happened + self._on_message(self._accept(call.peer), call)
        successor = self._connections.open(connection.number, connection.origin, peer=connection.peer)
        successor.is_verified = connection.is_verified
        return happened + self._on_message(successor, call)

    def _accept(self, peer: str) -> Connection:
        self._listeners.stop_waiting()
        return self._connections.open(self._connections.take_number(), Attached(peer), peer=peer)


def _environment_of(connection: Connection) -> str:
    """The environment of a connection, for the log; of programs that are not ours with its versions."""
    session, command = connection.session, connection.origin.command
    if command is not None and command.is_bundled:
        return f"environment '{command.env}'"
    if command is None and session.is_in_python:
        return "an environment in Python"
    what = (
        "Unity environment" if command is None or command.is_unity_build else f"environment '{command.env}'"
    )
    version = version_text(session.package_version) if session.package_version else "(none)"
    spoken = version_text(session.communication_version)
    return f"{what} with package version {version} and communication version {spoken}"
