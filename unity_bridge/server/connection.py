"""The state of one simulator's connection while the conversation lasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unity_bridge.server.origins import Origin
from unity_bridge.server.outbox import Outbox
from unity_bridge.server.session import STOP_MESSAGE, Awaited, Session
from unity_bridge.steps import ActionBatch
from unity_bridge.transport.endpoint import Call
from unity_bridge.transport.reading_clock import ReadingClock


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

    times_missing: int = 0
    """Times in a row that its connection was not found among the established ones."""

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
            self.times_missing = 0

    def is_overdue(self, now: float) -> bool:
        """Whether its time is up."""
        return self.deadline is not None and now >= self.deadline

    def waited_s(self, now: float, timeout_s: float) -> float:
        """Returns how long it has owed a message; 0 while it is not its turn, or its process is about to exit."""
        return 0.0 if self.deadline is None or self.end_reason else now - (self.deadline - timeout_s)

    @property
    def is_greeted(self) -> bool:
        """Whether it has had its first reset, and the conversation goes on."""
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
