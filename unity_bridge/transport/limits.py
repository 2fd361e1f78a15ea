"""Limits of a port: the messages and calls that it accepts from a client, and the turns of large messages.

gRPC does not tell how long a message is before all of it is in memory. So what a connection has sent before decides
whether its next message waits for its turn.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from unity_bridge.codec.protocol import LARGEST_HANDSHAKE
from unity_bridge.transport.inbox import ReadingClock

LARGEST_MESSAGE = 256 * 2**20
"""Bytes of one message. Ten thousand agents with a kilobyte each send 10 MiB; a thousand agents with 84 x 84 floats in
three channels 81 MiB."""

CALLS_PER_CONNECTION = 16
"""Calls of one connection at once; a simulator makes one. gRPC refuses more without waking a thread of ours."""

SILENT_CALL_S = 30.0
"""Maximum seconds from a call's beginning to its message. Time in which the trainer does not read does not count."""

MOST_SILENT_CALLS = 256
"""Calls of one port that have not brought their message yet. One more takes the place of the oldest, never of one that
has spoken."""

LEAST_PING_INTERVAL_S = 5
"""How often a client with a waiting call may ask whether the line still stands; gRPC itself allows it every 300 s."""

LARGE_MESSAGE = 16 * 2**20
"""Bytes of a message from which on the next of its connection has to wait for its turn. A compressed message may not
have more after inflating, which costs its sender next to nothing."""

TURN_S = 1.0
"""Maximum seconds that a message may take to arrive before another waiting message gets the turn."""

MOST_OVERDUE = 2
"""Calls whose messages may be on their way when their turns are over. Others wait while there are so many."""

LONGEST_S = 10.0
"""Seconds after which an overdue call ends while others wait. 16 MiB take that long at 13 Mbit/s."""

TOO_LARGE = "inflated message larger than max"
"""The refusal of a compressed message, in gRPC's words for any other."""

_HANDSHAKE_MESSAGES = 2
"""Messages of a connection before its first step; they are small, or refused."""
_MOST_PEERS = 8192
_HANDSHAKE_S = 20
_COMPRESSED = (b"\x1f\x8b\x08", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""Beginnings of gzip and of zlib, and of no UnityMessageProto."""
_MOST_CONNECTIONS = 4096


def channel_options(capacity: int) -> tuple[tuple[str, int], ...]:
    """Returns gRPC's arguments for a port at which ``capacity`` simulators may wait at once."""
    return (
        ("grpc.so_reuseport", 0),  # else two trainers share a port, and simulators, without a word
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.per_message_decompression", 0),  # gRPC would inflate any message to that length
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_S * 1000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", LEAST_PING_INTERVAL_S * 1000),
        ("grpc.max_allowed_incoming_connections", most_connections(capacity)),
    )


def most_connections(capacity: int) -> int:
    """Returns how many connections one port takes at once: more than simulators, but few enough that the run itself has
    files left."""
    return max(16, min(_MOST_CONNECTIONS, 2 * capacity + 64, _open_files() // 2))


def inflated(data: bytes, most: int) -> bytes | None:
    """Returns a message as it was before gRPC compressed it; None if it had more than ``most`` bytes."""
    if not data.startswith(_COMPRESSED):
        return data
    try:
        message = zlib.decompressobj(wbits=47).decompress(data, most + 1)
    except zlib.error:
        return data  # no message, compressed or not
    return message if len(message) <= most else None


def _open_files() -> int:
    """Returns how many files and sockets this process may have open."""
    if sys.platform == "win32":
        return 2 * _MOST_CONNECTIONS  # sockets are no files there
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft


class WaitingCalls:
    """Slots for waiting calls, so that one connection cannot block all others.

    Each connection has one slot of its own, because a simulator makes one call at a time. Each further call of a
    connection takes a shared slot. So a connection is served, however many calls other connections make. gRPC limits
    the number of connections. May be used by several threads.
    """

    def __init__(self, shared: int) -> None:
        """``shared``: calls that may wait at once, beside the first of each connection."""
        self.shared = shared
        self._lock = threading.Lock()
        self._by_peer: Counter[str] = Counter()
        self._taken = 0

    def enter(self, peer: str) -> bool:
        """Takes a place for a call of a peer. Returns False if there is none."""
        with self._lock:
            is_further = self._by_peer[peer] > 0
            if is_further and self._taken >= self.shared:
                return False
            self._taken += is_further
            self._by_peer[peer] += 1
            return True

    def leave(self, peer: str) -> None:
        """Gives back the place of one call of a peer."""
        with self._lock:
            self._by_peer[peer] -= 1
            if self._by_peer[peer]:
                self._taken -= 1
            else:
                del self._by_peer[peer]


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

    def __init__(self, clock: ReadingClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._messages: dict[str, int] = {}
        """Small messages of each peer in a row, as many as matter."""
        self._current: Turn | None = None
        self._waiting: deque[Turn] = deque()
        self._overdue: deque[Turn] = deque()

    def request(self, turn: Turn) -> None:
        """Starts to receive a message, now or when its turn comes."""
        with self._lock:
            if self._messages.get(turn.peer, 0) != _HANDSHAKE_MESSAGES:
                turn.start()
                return
            self._waiting.append(turn)
            self._start_next()

    def inflated(self, turn: Turn, data: bytes) -> bytes | None:
        """Returns a received message, inflated; None if it is too large for its connection's earlier messages."""
        greets = self._messages.get(turn.peer, 0) < _HANDSHAKE_MESSAGES
        return inflated(data, min(LARGEST_HANDSHAKE if greets else LARGE_MESSAGE, LARGEST_MESSAGE))

    def note_message(self, turn: Turn, size: int) -> bool:
        """Notes that a message has come. Returns whether it is a large one, which keeps its turn until ``end``."""
        with self._lock:
            is_large = size > LARGE_MESSAGE
            if len(self._messages) >= _MOST_PEERS:  # of connections that are gone
                self._messages.clear()
            known = self._messages.get(turn.peer, 0)
            self._messages[turn.peer] = (
                _HANDSHAKE_MESSAGES if is_large else min(known, _HANDSHAKE_MESSAGES) + 1
            )
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
            turn.start()
