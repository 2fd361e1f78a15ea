"""Turns in which messages that may be large are received: one at a time over all connections.

gRPC tells nobody how long a message is before all of it is in memory, so what a connection has sent before has to tell.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from unity_bridge.transport.reading_clock import ReadingClock

LARGE_MESSAGE = 16 * 2**20
"""Bytes of a message from which on the next of its connection has to wait for its turn."""

TURN_S = 1.0
"""Maximum seconds that a message may take to arrive before another waiting message gets the turn."""

MOST_OVERDUE = 2
"""Calls whose messages may be on their way when their turns are over. Others wait while there are so many."""

LONGEST_S = 10.0
"""Seconds after which an overdue call ends while others wait. 16 MiB take that long at 13 Mbit/s."""

_HANDSHAKE = 2
"""Messages of a connection before its first step; they are small, or refused."""
_MOST_PEERS = 8192


@dataclass(slots=True, eq=False)
class Turn:
    """The reception of one message."""

    peer: str
    start: Callable[[], None]
    """Begins to receive the message."""
    expire: Callable[[str], object]
    """Ends the call, for a reason."""
    began: float = 0.0
    """When it was started, by the clock."""


class MessageTurns:
    """Lets a connection send its first step, and any message after a large one, only when it is its turn.

    Every other message is received at once. May be used by several threads.
    """

    def __init__(
        self, clock: ReadingClock, begin: Callable[[Callable[[], None]], None] = lambda start: start()
    ) -> None:
        """begin: calls the start of a turn that had to be waited for, as soon as it can."""
        self._clock = clock
        self._begin = begin
        self._lock = threading.RLock()
        self._messages: dict[str, int] = {}
        """Small messages of each peer in a row, as many as matter."""
        self._current: Turn | None = None
        self._waiting: deque[Turn] = deque()
        self._overdue: deque[Turn] = deque()

    def request(self, turn: Turn) -> None:
        """Starts to receive a message, now or when its turn comes."""
        with self._lock:
            if self._messages.get(turn.peer, 0) != _HANDSHAKE:
                turn.start()
                return
            self._waiting.append(turn)
            self._start_next()

    def note_message(self, turn: Turn, size: int) -> bool:
        """Notes that a message has come. Returns whether it is a large one, which keeps its turn until ``end``."""
        with self._lock:
            is_large = size > LARGE_MESSAGE
            if len(self._messages) >= _MOST_PEERS:  # of connections that are gone
                self._messages.clear()
            known = self._messages.get(turn.peer, 0)
            self._messages[turn.peer] = _HANDSHAKE if is_large else min(known, _HANDSHAKE) + 1
            if not is_large:
                self.end(turn)
            return is_large

    def end(self, turn: Turn) -> None:
        """Passes the turn on: its message is read, or its call is over. A call that waits for its turn gives up."""
        with self._lock:
            for queue in (self._waiting, self._overdue):
                if turn in queue:
                    queue.remove(turn)
            if turn is self._current:
                self._current = None
                self._start_next()

    def pass_on(self, now: float) -> None:
        """Passes the turn on where its message has been on its way for too long and others wait."""
        with self._lock:
            current = self._current
            if current is None or not self._waiting or now < current.began + TURN_S:
                return
            if len(self._overdue) >= MOST_OVERDUE:
                if now < self._overdue[0].began + LONGEST_S:
                    return
                oldest = self._overdue.popleft()
                oldest.expire(
                    f"its message did not arrive within {LONGEST_S:g} s, and others wait for their turn"
                )
            self._overdue.append(current)
            self._current = None
            self._start_next()

    def _start_next(self) -> None:
        if self._current is None and self._waiting:
            self._current = turn = self._waiting.popleft()
            turn.began = self._clock.now()
            self._begin(turn.start)
