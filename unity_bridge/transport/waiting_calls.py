"""How many calls of a port have brought their message and wait for an answer."""

from __future__ import annotations

import threading
from collections import Counter


class WaitingCalls:
    """Places for calls that wait, so handed out that nobody can take those of all others.

    Each connection has one place of its own, because a simulator makes one call at a time; any further call of a
    connection takes one of those that all of them share. So a connection is served however many others call, and how
    many connections there may be is gRPC's business. May be used by several threads.
    """

    def __init__(self, shared: int) -> None:
        """``shared``: calls that may wait at once, beside the first of each connection."""
        self.shared = shared
        self._lock = threading.Lock()
        self._by_peer: Counter[str] = Counter()
        self._taken = 0

    def enter(self, peer: str) -> bool:
        """Takes a place for a call of a peer. False if there is none."""
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
