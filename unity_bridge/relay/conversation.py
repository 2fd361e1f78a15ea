"""One simulator's conversation with the trainer, which outlives a lost line and a trainer that starts again."""

from __future__ import annotations

import contextlib
import logging
import platform
import re
import secrets
import threading
import time
from collections.abc import Sequence

import grpc

from unity_bridge.errors import BridgeError
from unity_bridge.relay.handshake import Handshake
from unity_bridge.remote.dialing import PlainConnection, TrainerUnreachable
from unity_bridge.server.session import STOP_MESSAGE
from unity_bridge.simulators.conversation import goodbye
from unity_bridge.transport.relayed_calls import UNKNOWN_SESSION, exchange_metadata

_logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 2.0
"""Between two attempts to reach the trainer."""

LONGEST_DIAL_S = 12.0
"""How long an attempt without a connection may last; one that lasted longer had a connection, and lost it."""

GOODBYE_S = 2.0
"""How long the trainer may take to answer a goodbye."""

_FINAL = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""Answers of a server. Any other status means that the line broke, or that the trainer is about to end."""


class Refused(Exception):
    """The trainer refused a message. The text is what it said."""


class TrainerLost(BridgeError):
    """The trainer cannot be reached, or lets this relay in no longer."""


class Left(Exception):
    """The simulator has left while its message waited."""


class _Unknown(Exception):
    """The trainer does not know the conversation."""


class Conversation:
    """Exchanges of one simulator, each of which counts once.

    A message whose reply was lost is sent again under the same number, and the trainer sends the same reply. A trainer
    that was started again does not know the conversation: the simulator is introduced to it, and its message is
    answered with that trainer's RESET, which begins new episodes. Blocks; ``leave`` may be called by another thread.
    """

    def __init__(self, connection: PlainConnection, number: int, *, patience_s: float) -> None:
        """
        Args:
            connection: to the trainer, for this simulator only.
            number: of the simulator on this machine.
            patience_s: how long the trainer may be unreachable.
        """
        self._connection = connection
        self._number = number
        self._patience_s = patience_s
        self._handshake = Handshake()
        self._left = threading.Event()
        self._waits = False
        """Whether a message of the simulator waits for its reply."""
        self._session, self._count = _new_session(number), 0

    def exchange(self, data: bytes) -> bytes:
        """Sends a simulator's message and returns the trainer's reply, however long that takes.

        Raises:
            Refused: the trainer refuses it.
            TrainerLost: the trainer was unreachable for too long, or does not let us in.
            Left: ``leave`` was called meanwhile.
        """
        self._handshake.note(data)
        messages, self._waits = [data], True
        try:
            while True:
                try:
                    return self._exchange_all(messages)
                except _Unknown:
                    _logger.info(
                        "simulator %d: introduced again to a trainer that does not know it", self._number
                    )
                    self._session, self._count = _new_session(self._number), 0
                    messages = self._handshake.messages() or [data]
        finally:
            self._waits = False

    def leave(self) -> None:
        """Ends an exchange that waits. From any thread; call it again while one still waits."""
        self._left.set()
        if self._waits:
            self._connection.close()

    def say_goodbye(self, report: str) -> None:
        """Tells the trainer that the simulator is gone, with a report for its log; an unreachable one is left alone."""
        self._count += 1
        metadata = exchange_metadata(self._session, self._count, report)
        with contextlib.suppress(grpc.RpcError, BridgeError, ValueError):
            self._connection.exchange(goodbye(), timeout=GOODBYE_S, metadata=metadata)
        self._connection.close()

    def _exchange_all(self, messages: Sequence[bytes]) -> bytes:
        """Sends messages one after the other; returns the reply to the last, or an earlier one that ends it all."""
        reply = STOP_MESSAGE
        for message in messages:
            self._count += 1
            reply = self._deliver(message)
            if reply == STOP_MESSAGE:
                break
        return reply

    def _deliver(self, data: bytes) -> bytes:
        """Sends a message under the present number until there is a reply."""
        lost_at: float | None = None
        pause_s = FIRST_PAUSE_S
        while True:
            began, had_line, wait_s = time.monotonic(), False, 0.0
            try:
                reply = self._connection.exchange(
                    data, metadata=exchange_metadata(self._session, self._count)
                )
            except (grpc.RpcError, TrainerUnreachable, ValueError) as error:
                reason = self._reason_of(error)
                had_line = isinstance(error, grpc.RpcError) and time.monotonic() - began > LONGEST_DIAL_S
                wait_s = getattr(error, "wait_s", 0.0)
            else:
                if lost_at is not None:
                    _logger.info("simulator %d: the trainer answers again", self._number)
                return reply
            now = time.monotonic()
            if lost_at is None or had_line:
                lost_at, pause_s = now, FIRST_PAUSE_S
                _logger.warning(
                    "simulator %d: no line to the trainer (%s); trying again", self._number, reason
                )
            if now - lost_at >= self._patience_s:
                raise TrainerLost(
                    f"the trainer at {self._connection.address} was not reached within {self._patience_s:g} s "
                    f"(timeout_wait): {reason}"
                )
            if self._left.wait(min(max(pause_s, wait_s), lost_at + self._patience_s - now)):
                raise Left
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _reason_of(self, error: grpc.RpcError | TrainerUnreachable | ValueError) -> str:
        """Returns why there is no line. Raises the fitting exception for any other error."""
        if self._left.is_set():
            raise Left from None
        if not isinstance(error, grpc.RpcError):
            return str(error)
        # Every error that a call raises is also that call, which its published type does not say.
        code, details = error.code(), error.details() or ""
        if details == UNKNOWN_SESSION:
            raise _Unknown from None
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            raise Refused(details) from None
        if code in _FINAL:
            raise TrainerLost(
                f"the trainer at {self._connection.address} answered {code.name}: {details}"
            ) from None
        return f"{code.name}: {details}"


def _new_session(number: int) -> str:
    """Returns a name for another conversation, which the trainer takes for another simulator's."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node())[:64] or "unnamed"
    return f"{host}/{number}-{secrets.token_hex(8)}"
