"""The relay: starts simulators on its machine, or waits for some, and forwards their messages to the trainer."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from queue import Empty
from typing import Self

from unity_bridge.errors import BridgeError
from unity_bridge.programs.executables import Command
from unity_bridge.programs.launched_process import Exit
from unity_bridge.relay.conversation import GOODBYE_S, Conversation
from unity_bridge.relay.relayed_simulator import Answered, RelayedSimulator
from unity_bridge.remote.dialing import PlainConnection
from unity_bridge.server.origins import Attached, Origin
from unity_bridge.server.session import STOP_MESSAGE, is_goodbye, is_introduction
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.server.supervisor import EXIT_WAIT_S, LaunchedSimulator, Supervisor
from unity_bridge.transport import peers
from unity_bridge.transport.endpoint import Call, Endpoint, HangUp
from unity_bridge.transport.inbox import Inbox

_logger = logging.getLogger(__name__)

_LOOK_S = 1.0
"""Seconds between two looks for simulators that are late, or gone."""

MOST_ATTACHED = 256
"""Simulators that may be attached at once. Each costs a thread here, and a connection to the trainer."""


class Relay:
    """A context manager that owns the simulators' ports and processes, and a line to the trainer for each."""

    def __init__(self, settings: BridgeSettings, connect: Callable[[], PlainConnection]) -> None:
        """
        Args:
            settings: how simulators are started, watched and timed out. What the trainer tells them is not in here.
            connect: makes the connection of one simulator to the trainer, which dials later.
        """
        self._settings = settings
        self._connect = connect
        self._inbox = Inbox(direct=False)  # its reader is woken by threads, too
        self._supervisor = Supervisor(settings, self._inbox)
        self._endpoint: Endpoint | None = None
        self._simulators: dict[Hashable, RelayedSimulator] = {}
        """By the endpoint of a launched program, or the peer of one that attached."""
        self._leaving: list[RelayedSimulator] = []
        self._numbers = itertools.count()
        self._absences = peers.Absences()
        self._looks_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def listen(self, port: int = 5004) -> int:
        """Opens a port of this machine to which simulators attach. Returns the port, chosen if 0 was given.

        Raises:
            PortInUse: another process listens there.
        """
        self._endpoint = Endpoint("127.0.0.1", port, self._inbox, capacity=MOST_ATTACHED)
        return self._endpoint.port

    def launch(self, command: Command, count: int = 1) -> None:
        """Starts simulators, each with a port of its own. Raises LaunchError and PortInUse as ``Bridge.launch``."""
        for _ in range(count):
            number = next(self._numbers)
            self._open(number, self._supervisor.start(number, command))

    def run(self) -> None:
        """Carries messages until the trainer has ended all conversations; with an open port, without an end.

        Raises:
            LaunchError: a launched program never came to a first step.
            SimulatorLost: a launched simulator is gone and may not be started again.
            BridgeError: the trainer was unreachable for too long, or refuses this relay.
        """
        while self._endpoint is not None or not all(each.is_over for each in self._simulators.values()):
            with suppress(Empty):
                self._handle(self._inbox.get(timeout=_LOOK_S))
            self._check_deadlines()
            self._leaving = [each for each in self._leaving if not each.has_left()]
        for each in self._simulators.values():
            if isinstance(each.origin, LaunchedSimulator):
                each.origin.process.program.wait(EXIT_WAIT_S)

    def close(self) -> None:
        """Ends all simulators, tells the trainer, and frees the ports."""
        for each in self._simulators.values():
            if not each.is_over:
                each.leave()
        until = time.monotonic() + GOODBYE_S
        for each in [*self._simulators.values(), *self._leaving]:
            each.has_left(max(0.0, until - time.monotonic()))
        self._supervisor.stop(each.origin for each in self._simulators.values())
        if self._endpoint is not None:
            self._endpoint.stop()

    def _open(self, number: int, origin: Origin) -> RelayedSimulator:
        timeout_s = self._settings.timeout_wait_s
        conversation = Conversation(self._connect(), number, patience_s=timeout_s)
        simulator = RelayedSimulator(number, origin, conversation, self._inbox, timeout_s)
        self._simulators[origin.source] = simulator
        return simulator

    def _handle(self, event: Call | HangUp | Exit | Answered) -> None:
        match event:
            case Call():
                self._on_call(event)
            case Answered():
                self._on_answer(event)
            case HangUp(call):
                caller = self._caller(call)
                if caller is not None and caller.is_waiting_for(call):
                    self._on_end(caller, "closed its connection while it waited for a reply")
            case Exit(endpoint):
                ended = self._simulators.get(endpoint)
                if ended is not None and not ended.is_over:
                    self._end(ended, ended.end_reason)

    def _caller(self, call: Call) -> RelayedSimulator | None:
        return self._simulators.get(call.endpoint) or self._simulators.get(call.peer)

    def _on_call(self, call: Call) -> None:
        simulator = self._caller(call)
        if simulator is None and call.endpoint is self._endpoint and is_introduction(call.data):
            if len(self._simulators) >= MOST_ATTACHED:
                call.refuse(f"expected at most {MOST_ATTACHED} simulators at this port, got another")
                return
            simulator = self._open(next(self._numbers), Attached(call.peer))
            _logger.info("%s attached", simulator.name)
        if simulator is None or simulator.is_over:
            call.answer(STOP_MESSAGE)
        elif self._is_stranger(simulator, call):
            call.refuse("this port is for a program that the relay started, and its place is taken")
        elif simulator.waits and is_goodbye(call.data):
            call.answer(STOP_MESSAGE)
            self._on_end(simulator, "stopped by itself (status 400)")
        elif simulator.waits:
            call.refuse(f"{simulator.name}: expected no other call before the last one is answered")
        else:
            simulator.send(call)

    def _is_stranger(self, simulator: RelayedSimulator, call: Call) -> bool:
        """Whether a launched program has another connection already, and this one is not shown to be its own."""
        pid = simulator.origin.pid
        if pid is None or simulator.peer in ("", call.peer):
            return False
        return not peers.belongs_to_process(call.peer, call.endpoint.port, pid)

    def _on_answer(self, answered: Answered) -> None:
        """Notes a reply. One that ends the conversation ends the simulator, too; its process may take a moment."""
        if answered.error is not None:
            raise answered.error
        simulator = answered.simulator
        simulator.note_reply()
        if simulator.is_over or not answered.is_over:
            return
        if answered.said_goodbye:
            self._on_end(simulator, "stopped by itself (status 400)")
        else:
            _logger.info("%s: the trainer ended the conversation", simulator.name)
            self._leave(simulator)

    def _on_end(self, simulator: RelayedSimulator, why: str) -> None:
        """Ends a simulator that is gone. A launched process gets a moment to exit and so tell its exit code."""
        if not simulator.origin.exit_wait_s:
            self._end(simulator, why)
            return
        simulator.end_reason = why
        simulator.deadline = time.monotonic() + simulator.origin.exit_wait_s

    def _end(self, simulator: RelayedSimulator, why: str, *, hangs: bool = False) -> None:
        """Ends a simulator, tells the trainer why, and starts it again if it was launched.

        Raises:
            LaunchError, SimulatorLost: as ``Origin.successor``.
        """
        failure = simulator.origin.failure(why, hangs=hangs)
        try:
            successor = simulator.origin.successor(simulator.name, failure)
        except BridgeError as error:
            self._leave(simulator, str(error))
            raise
        report = f"{simulator.name}: {failure.reason}{failure.news}"
        # An Editor stops and plays all day; a program that the relay started should not.
        _logger.log(logging.WARNING if simulator.origin.is_own else logging.INFO, "%s", report)
        self._leave(simulator, report)
        if successor is not None:
            del self._simulators[simulator.origin.source]
            self._open(simulator.number, successor)

    def _leave(self, simulator: RelayedSimulator, report: str = "") -> None:
        simulator.leave(report)
        self._leaving.append(simulator)
        if not simulator.origin.is_own:
            self._simulators.pop(simulator.origin.source, None)

    def _check_deadlines(self) -> None:
        """Ends simulators whose message is overdue, and attached simulators that are gone."""
        now = time.monotonic()
        owing = [each for each in self._simulators.values() if not each.is_over and each.deadline is not None]
        port, gone = self._endpoint.port if self._endpoint else 0, frozenset[tuple[str, int]]()
        if port and now >= self._looks_at:
            self._looks_at = now + _LOOK_S
            gone = self._absences.gone({(each.peer, port) for each in owing})
        for each in owing:
            if (each.peer, port) in gone:
                self._end(each, "closed its connection")
            elif each.deadline is not None and now >= each.deadline:
                silent = f"silent for {self._settings.timeout_wait_s:g} s (timeout_wait)"
                self._end(each, each.end_reason or silent, hangs=not each.end_reason)
