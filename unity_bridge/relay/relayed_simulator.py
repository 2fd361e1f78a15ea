"""One simulator beside the relay: its origin, the call that it waits for, and the thread that talks to the trainer."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue

from unity_bridge.errors import BridgeError
from unity_bridge.relay.conversation import Conversation, Left, Refused
from unity_bridge.server.origins import Origin
from unity_bridge.server.session import STOP_MESSAGE, is_goodbye
from unity_bridge.transport.endpoint import Call
from unity_bridge.transport.inbox import Inbox


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """The event that the trainer has replied to a simulator, or that it never will."""

    simulator: RelayedSimulator
    is_over: bool = False
    """Whether the conversation is over."""
    said_goodbye: bool = False
    """Whether it was the simulator that ended it."""
    error: BridgeError | None = None
    """Why the trainer is lost."""


class RelayedSimulator:
    """A simulator whose messages a thread carries to the trainer, one after the other."""

    def __init__(
        self, number: int, origin: Origin, conversation: Conversation, inbox: Inbox, timeout_s: float
    ) -> None:
        self.number = number
        self.name = f"simulator {number} ({origin.label})"
        self.origin = origin
        self.peer = ""
        """Its connection as gRPC names it; empty until its first message."""
        self.is_over = False
        """Whether its conversation is over, and its process may exit."""
        self.end_reason = ""
        """Why it is about to end, while its process has a moment left to exit."""
        self.has_stepped = False
        self.deadline: float | None
        """When its message is overdue, by ``time.monotonic``; None while the trainer owes the reply."""
        self._call: Call | None = None
        self._conversation = conversation
        self._inbox = inbox
        self._timeout_s = timeout_s
        self._num_answered = 0
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._report = ""
        self._thread = threading.Thread(target=self._carry, name=f"relay-{number}", daemon=True)
        self._thread.start()
        self.expect_message()

    @property
    def waits(self) -> bool:
        """Whether its message waits for the trainer's reply."""
        return self._call is not None

    def is_waiting_for(self, call: Call) -> bool:
        """Whether its message is this one."""
        return self._call is call

    def send(self, call: Call) -> None:
        """Has a message carried to the trainer, whose reply answers the call."""
        self.peer, self._call, self.deadline = call.peer, call, None
        self._calls.put(call)

    def note_reply(self) -> None:
        """Notes that the reply has come: the simulator owes the next message."""
        self._call = None
        self._num_answered += 1
        if self._num_answered > 2 and not self.has_stepped:  # beyond the handshake
            self.has_stepped = True
            self.origin.note_step()
        self.expect_message()

    def expect_message(self) -> None:
        """Begins the time in which a message is due."""
        self.deadline = time.monotonic() + self._timeout_s

    def leave(self, report: str = "") -> None:
        """Ends the conversation, with a report for the trainer's log. Does not wait; see ``has_left``."""
        if self._call is not None:
            self._call.answer(STOP_MESSAGE)
            self._call = None
        self.is_over, self._report = True, report
        self._calls.put(None)
        self._conversation.leave()

    def has_left(self, timeout_s: float = 0.0) -> bool:
        """Whether the trainer has been told; waits a while for that."""
        if self._thread.is_alive():
            self._conversation.leave()  # again, for it may have been about to wait
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _carry(self) -> None:
        """Carries messages until the simulator leaves or the trainer is lost."""
        while (call := self._calls.get()) is not None:
            assert isinstance(call.data, bytes)
            try:
                reply = self._conversation.exchange(call.data)
            except Refused as refusal:
                self._inbox.put(Answered(self))
                call.refuse(str(refusal))
                continue
            except Left:
                break
            except BridgeError as error:
                self._inbox.put(Answered(self, error=error))
                call.refuse(str(error))
                return
            # Noted before it is sent, for the next message may be here at once.
            is_over = reply == STOP_MESSAGE
            self._inbox.put(Answered(self, is_over, said_goodbye=is_over and is_goodbye(call.data)))
            call.answer(reply)
        self._conversation.say_goodbye(self._report)
