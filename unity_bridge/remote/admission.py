"""The decision on each call at a secured port: by its token, before its message is read."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import grpc

from unity_bridge.remote.tokens import TokenFile
from unity_bridge.transport.peers import host_of
from unity_bridge.transport.service import WAIT, Refusal

LOGGER = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Calls with a wrong token, or none, of one address and minute that are told so. Further ones are told to wait."""

WINDOW_S = 60.0
"""How long failures count; also the time between two reports of them."""

_MOST_ADDRESSES = 4096
_MOST_REPORTED = 5
_SCHEME = b"Bearer "


class Admission:
    """Admits calls that carry a token of a file. May be used by several threads.

    Every token is compared, so that no caller is kept out by another program of the same address. What is limited by
    address is how often a wrong token is told that it is one.
    """

    def __init__(self, tokens: TokenFile, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: the clock of the limit, in seconds."""
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, tuple[float, int]] = {}
        """When each address failed first in its present window, and how often since."""
        self._unreported: Counter[str] = Counter()
        self._reported_at = -WINDOW_S

    def admits(self, metadata: Sequence[tuple[str, str | bytes]]) -> bool:
        """Whether a call carries a valid token."""
        given = _token_in(metadata)
        with self._lock:
            return bool(given) and self._tokens.accepts(given)

    def refusal(self, peer: str, metadata: Sequence[tuple[str, str | bytes]]) -> Refusal | None:
        """Returns the answer to a call that is refused; None if it is admitted.

        Args:
            peer: the caller as gRPC names it.
            metadata: those of the call.
        """
        if self.admits(metadata):
            return None
        given, host = _token_in(metadata), host_of(peer)
        with self._lock:
            if host in self._unreported or len(self._unreported) < _MOST_ADDRESSES:
                self._unreported[host] += 1
            if wait_s := self._note_failure(host):
                why, wait = (
                    f"too many calls without a valid token; wait {wait_s:.0f} s",
                    (WAIT, f"{wait_s:.1f}"),
                )
                return Refusal(why, grpc.StatusCode.RESOURCE_EXHAUSTED, (wait,))
            why = "its token is wrong, has ended or was revoked" if given else "it carries no token"
            return Refusal(f"{why}: use the join code that the trainer prints now")

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

    def _note_failure(self, host: str) -> float:
        """Returns for how many seconds an address is told no more; 0 while it is."""
        now = self._clock()
        began, count = self._failures.pop(host, (now, 0))
        if now >= began + WINDOW_S:
            began, count = now, 0
        if len(self._failures) >= _MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[host] = (began, count + 1)
        return began + WINDOW_S - now if count >= MOST_FAILURES else 0.0


def _token_in(metadata: Sequence[tuple[str, str | bytes]]) -> bytes:
    """Returns the token that a call carries; empty if it carries none."""
    for key, value in metadata:
        if key == "authorization":
            text = value if isinstance(value, bytes) else value.encode()
            return text.removeprefix(_SCHEME) if text.startswith(_SCHEME) else b""
    return b""
