"""Limits of a port: the messages and calls that it accepts from a client."""

from __future__ import annotations

import sys
import threading
from collections import Counter

LARGEST_MESSAGE = 256 * 2**20
"""Bytes of one message, also after inflating. Ten thousand agents with a kilobyte each send 10 MiB; a thousand
agents with 84 x 84 floats in three channels 81 MiB."""

CALLS_PER_CONNECTION = 16
"""Calls of one connection at once; a simulator makes one. gRPC refuses more without waking a thread of ours."""

SILENT_CALL_S = 30.0
"""Maximum seconds from a call's beginning to its message. Time in which the trainer does not read does not count."""

MOST_SILENT_CALLS = 256
"""Calls of one port that have not brought their message yet. One more takes the place of the oldest, never of one that
has spoken."""

LEAST_PING_INTERVAL_S = 5
"""How often a client with a waiting call may ask whether the line still stands; gRPC itself allows it every 300 s."""

_HANDSHAKE_S = 20
_MOST_CONNECTIONS = 4096


def channel_options(capacity: int) -> tuple[tuple[str, int], ...]:
    """Returns gRPC's arguments for a port at which ``capacity`` simulators may wait at once."""
    return (
        ("grpc.so_reuseport", 0),  # else two trainers share a port, and simulators, without a word
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
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
