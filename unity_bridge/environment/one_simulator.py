"""One simulator behind a port of its own, in strict turns: a message, its answer, the next message.

For programs that hold one conversation and have no other task. What goes wrong is raised as the exceptions
of ``mlagents_envs``. Many simulators at once, which come and go, are the Bridge's.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from queue import Empty
from typing import TypeVar

from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityObservationException,
    UnityTimeOutException,
)

from unity_bridge.errors import WireError
from unity_bridge.programs.child_process import stop_processes
from unity_bridge.programs.executables import Command
from unity_bridge.programs.launched_process import Exit, LaunchedProcess, LaunchPlan, RestartBudget
from unity_bridge.server.session import STOP_MESSAGE, Awaited, Reply, Session, Step, is_introduction
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.steps import ActionBatch
from unity_bridge.transport import peers
from unity_bridge.transport.endpoint import Call, Endpoint, HangUp
from unity_bridge.transport.inbox import Inbox

LOGGER = logging.getLogger(__name__)

EXIT_WAIT_S = 1.0
"""How long a launched simulator that hung up may take to exit and so tell its exit code."""

_Message = TypeVar("_Message", Reply, Step)

_CAPACITY = 8  # one call is in flight in practice; any other is read, and refused by name


class OneSimulator:
    """A port, perhaps the process that was started for it, and one conversation."""

    def __init__(
        self,
        *,
        seed: int,
        num_areas: int,
        timeout_s: float,
        outgoing: Callable[[], Iterable[SideChannelRecord]],
    ) -> None:
        """Prepares a conversation; call ``launch`` or ``listen``, then ``connect``.

        Args:
            seed: for the simulator's own randomness; fits an int32.
            num_areas: copies of the training area that it shall make.
            timeout_s: how long it may take for any message that it owes.
            outgoing: what it shall hear on side channels, asked for each reply that can carry it.
        """
        # The published API raises for NaN and infinities, and programs may count on it.
        self._session = Session(seed=seed, num_areas=num_areas, greeting=outgoing, refuse_unusable=True)
        self._timeout_s = timeout_s
        self._outgoing = outgoing
        self._inbox = Inbox()
        self._endpoint: Endpoint | None = None
        self._launched: LaunchedProcess | None = None
        self._own_logs: Path | None = None
        self._waiting: Call | None = None
        self._last: Call | None = None
        self._name = "the simulator"
        """The name of the simulator in every text."""

    def launch(self, command: Command, *, worker: int, port: int, log_folder: Path | None) -> None:
        """Starts the program that shall connect. Without a folder what it prints is kept until ``close``.

        Raises:
            LaunchError: the system refuses to start it.
            PortInUse: the port is taken.
        """
        if log_folder is None:
            log_folder = self._own_logs = Path(tempfile.mkdtemp(prefix="run_logs-"))
        log_folder.mkdir(parents=True, exist_ok=True)
        plan = LaunchPlan(
            number=worker,
            command=command,
            port=port,
            run_logs=log_folder,
            inbox=self._inbox,
            restarts=RestartBudget(lifetime=0, per_period=0, period_s=0.0),
        )
        self._launched = plan.start()
        self._endpoint = self._launched.endpoint
        self._name = f"{command.env} (pid {self._launched.program.pid})"

    def listen(self, port: int) -> None:
        """Opens a port of this machine where one simulator may attach; 0 lets the system choose.

        Raises:
            PortInUse: another process listens there.
            BridgeError: the address cannot be bound.
        """
        self._endpoint = Endpoint("127.0.0.1", port, self._inbox, capacity=_CAPACITY)
        self._name = f"the simulator on {self._endpoint.address}"
        LOGGER.info("Listening on port %d. Press Play in the Unity Editor, or start a simulator.", port)

    def connect(self) -> None:
        """The handshake, up to where the simulator waits for its first reset.

        Raises:
            UnityTimeOutException: it said nothing in time.
            UnityEnvironmentException: its process ended, or it speaks another protocol.
            UnityCommunicatorStoppedException: it ended the conversation.
        """
        call = self._next_call()
        try:
            call.answer(self._on_message(call, Reply).data)
        except UnityObservationException as error:
            raise UnityEnvironmentException(str(error)) from error
        self._waiting = self._next_call()

    def reset(self) -> Step:
        """Answers the waiting simulator with RESET and returns its next step; raises like ``step``."""
        call = self._take_call()
        if self._session.awaited is Awaited.CONFIRMATION:
            # Read this late because the answer carries what the program queued since the handshake.
            call.answer(self._on_message(call, Reply).data)
        else:
            call.answer(self._session.reset(self._outgoing()))
        return self._next_step()

    def step(self, actions: Mapping[str, ActionBatch]) -> Step:
        """Answers the waiting simulator with actions and returns its next step.

        Raises:
            UnityTimeOutException: it said nothing in time.
            UnityCommunicatorStoppedException: the conversation is over.
            UnityEnvironmentException: its process ended.
            UnityObservationException: its message breaks the protocol.
        """
        self._take_call().answer(self._session.reply(actions, self._outgoing()))
        return self._next_step()

    def close(self, grace_s: float) -> None:
        """Closes the conversation, waits for the process to exit, then ends it. Frees the port. Idempotent."""
        if self._endpoint is None:
            return
        if self._waiting is not None:
            self._waiting.answer(STOP_MESSAGE)
        if self._launched is not None:
            if self._waiting is not None:
                self._wait_for_exit(grace_s)
            stop_processes([self._launched.program], grace_s=EXIT_WAIT_S)
        self._endpoint.stop()
        self._endpoint = self._waiting = None
        if self._own_logs is not None:
            shutil.rmtree(self._own_logs, ignore_errors=True)

    def _take_call(self) -> Call:
        if self._waiting is None:
            raise UnityCommunicatorStoppedException(f"the conversation with {self._name} is over")
        call, self._waiting = self._waiting, None
        return call

    def _next_step(self) -> Step:
        call = self._next_call()
        step = self._on_message(call, Step)
        self._waiting = call
        return step

    def _on_message(self, call: Call, expected: type[_Message]) -> _Message:
        """The call's message. Unless it is one of the expected kind, the conversation is over."""
        try:
            message = self._session.receive(call.data)
        except WireError as error:
            call.refuse(str(error))
            raise UnityObservationException(f"{self._name}: {error}") from error
        if not isinstance(message, expected):
            call.answer(STOP_MESSAGE)
            raise UnityCommunicatorStoppedException(f"{self._name} ended the conversation")
        return message

    def _next_call(self) -> Call:
        """The simulator's next call."""
        until = time.monotonic() + self._timeout_s
        hung_up = False
        while True:
            try:
                event = self._inbox.get(timeout=until - time.monotonic())
            except Empty:
                raise self._timeout_error(hung_up=hung_up) from None
            match event:
                case Call() if self._is_from_simulator(event):
                    self._last = event
                    return event
                case Call():
                    event.refuse("another simulator is attached here already")
                case Exit():
                    raise UnityEnvironmentException(f"Environment shut down: {self._exit_report()}")
                case HangUp(call) if call is self._last:
                    hung_up = True
                    # A process of ours gets a moment to exit and so tell its exit code.
                    until = min(until, time.monotonic() + (EXIT_WAIT_S if self._launched else 0.0))

    def _is_from_simulator(self, call: Call) -> bool:
        """Whether the call is our simulator's: the first that attaches, or the program that was started."""
        if self._last is not None and call.peer == self._last.peer:
            return True
        if self._launched is None:
            return self._last is None
        if peers.belongs_to_process(call.peer, call.endpoint.port, self._launched.program.pid):
            return True
        return self._last is None and is_introduction(call.data)  # where the system cannot tell

    def _wait_for_exit(self, grace_s: float) -> None:
        """Sends the closing message and waits for the process to exit by itself."""
        until = time.monotonic() + grace_s
        try:
            while not isinstance(self._inbox.get(timeout=until - time.monotonic()), Exit):
                pass
        except Empty:
            LOGGER.warning("%s did not leave within %g s of our goodbye: ending it", self._name, grace_s)

    def _timeout_error(self, *, hung_up: bool) -> UnityException:
        if hung_up:
            return UnityCommunicatorStoppedException(
                f"{self._name} closed its connection while it waited for a reply"
            )
        waited, owed = f"{self._timeout_s:g} s", self._session.awaited.value
        if self._endpoint is not None and self._launched is None and self._last is None:
            return UnityTimeOutException(
                f"no simulator attached to {self._endpoint.address} within {waited}: start a simulator, or press Play "
                "in the Unity Editor"
            )
        log_tail = self._launched.log_tail() if self._launched else ""
        return UnityTimeOutException(
            f"{self._name} took too long to respond: silent for {waited}; it owes {owed}{log_tail}"
        )

    def _exit_report(self) -> str:
        assert self._launched is not None
        return f"{self._name} {self._launched.program.exit_text()}{self._launched.log_tail()}"
