"""The decision on each call at a secured port: by its token, before its message is read."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from unity_bridge.remote.tokens import TokenFile
from unity_bridge.transport.peers import host_of

LOGGER = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Calls with a wrong token, or none, of one address and minute. Tokens of further ones are not looked at."""

WINDOW_S = 60.0
"""How long failures count; also the time between two reports of them."""

_MOST_ADDRESSES = 4096
_MOST_PEERS = 8192
_MOST_REPORTED = 5
_SCHEME = b"Bearer "


class Admission:
    """Admits calls that carry a token of a file. Limits wrong ones by address. May be used by several threads."""

    def __init__(self, tokens: TokenFile, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: the clock of the limit, in seconds."""
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, tuple[float, int]] = {}
        """When each address failed first in its present window, and how often since."""
        self._admitted: dict[str, None] = {}
        """Connections that have shown a valid token: another program of their address cannot get them refused."""
        self._unreported: Counter[str] = Counter()
        self._reported_at = -WINDOW_S

    def refusal(self, peer: str, metadata: Sequence[tuple[str, str | bytes]]) -> str:
        """Returns why a call is refused; empty if it is admitted.

        Args:
            peer: the caller as gRPC names it.
            metadata: those of the call.
        """
        with self._lock:
            if self._failures and peer not in self._admitted and (wait_s := self._blocked_s(peer)):
                return self._refused(peer, f"too many calls without a valid token; wait {wait_s:.0f} s")
            given = _token_in(metadata)
            if given and self._tokens.accepts(given):
                if peer not in self._admitted:
                    _make_room(self._admitted, _MOST_PEERS)
                    self._admitted[peer] = None
                return ""
            self._admitted.pop(peer, None)
            self._note_failure(host_of(peer))
            why = "its token is wrong, has ended or was revoked" if given else "it carries no token"
            return self._refused(peer, f"{why}: use the join code that the trainer prints now")

    def report(self, *, is_last: bool = False) -> None:
        """Logs how many calls were refused, at most once a minute, unless no report follows."""
        with self._lock:
            is_due = is_last or self._clock() >= self._reported_at + WINDOW_S
            if not self._unreported or not is_due:
                return
            hosts = [f"{host} ({count})" for host, count in self._unreported.most_common(_MOST_REPORTED)]
            more = len(self._unreported) - len(hosts)
            LOGGER.warning(
                "Refused calls without a valid token: %d, of %s%s.",
                self._unreported.total(), ", ".join(hosts), f" and {more} other addresses" if more else "",
            )  # fmt: skip
            self._unreported.clear()
            self._reported_at = self._clock()

    def _refused(self, peer: str, why: str) -> str:
        host = host_of(peer)
        if host in self._unreported or len(self._unreported) < _MOST_ADDRESSES:
            self._unreported[host] += 1
        return why

    def _blocked_s(self, peer: str) -> float:
        """Returns for how long the tokens of an address are not looked at."""
        began, count = self._failures.get(host_of(peer), (0.0, 0))
        left = began + WINDOW_S - self._clock()
        return left if count >= MOST_FAILURES and left > 0 else 0.0

    def _note_failure(self, host: str) -> None:
        now = self._clock()
        began, count = self._failures.get(host, (now, 0))
        if now >= began + WINDOW_S:
            began, count = now, 0
        if host not in self._failures:
            _make_room(self._failures, _MOST_ADDRESSES)
        self._failures[host] = (began, count + 1)


def _token_in(metadata: Sequence[tuple[str, str | bytes]]) -> bytes:
    """Returns the token that a call carries; empty if it carries none."""
    for key, value in metadata:
        if key == "authorization":
            text = value if isinstance(value, bytes) else value.encode()
            return text.removeprefix(_SCHEME) if text.startswith(_SCHEME) else b""
    return b""


def _make_room(table: dict[str, Any], most: int) -> None:
    """Removes the oldest entry of a full table."""
    if len(table) >= most:
        del table[next(iter(table))]
