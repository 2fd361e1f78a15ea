"""The unary method that a port serves, whichever server does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc

Respond = Callable[[bytes | str | None], None]
"""Ends a call: bytes answer it, a text refuses it, None lets it go. Only the first response counts."""

Metadata = Sequence[tuple[str, str | bytes]]
"""The metadata of a call; values are bytes where the key ends in ``-bin``."""

Accept = Callable[[str, bytes, Respond, Metadata], Callable[[], None]]
"""Takes a message: its peer, its data, how to respond, and the call's metadata. Returns what to do if the client
is gone before that."""


PING_SERVICE, PING_METHOD = "unity_bridge.Remote", "Ping"
"""Of a secured port: admitted callers are told the time there, and nothing of the run is touched."""


WAIT = "x-wait-s"
"""Key of the seconds that a refused caller is to wait, in the metadata after the call."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a call that is not admitted."""

    why: str
    code: grpc.StatusCode = grpc.StatusCode.UNAUTHENTICATED
    metadata: tuple[tuple[str, str], ...] = ()
    """Sent after the call."""


class PortSecurity(Protocol):
    """TLS of a port, and who may call there."""

    @property
    def credentials(self) -> grpc.ServerCredentials: ...

    def admits(self, metadata: Metadata) -> bool:
        """Whether a call carries a valid token. From any thread."""
        ...

    def refusal(self, peer: str, metadata: Metadata) -> Refusal | None:
        """Returns the answer to a call that is refused before its message is read; None if it is admitted. From any
        thread."""
        ...

    def watch(self, now: float) -> None:
        """Does the due work; called about once a second while the port is open."""
        ...

    def close(self) -> None:
        """Does the remaining work; called when the port closes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One unary method at one address, and how many calls of it may wait."""

    address: str
    """Host and port; port 0 lets the system choose."""

    name: str
    """Name of the gRPC service; any other is unimplemented."""

    method: str

    options: tuple[tuple[str, int], ...]
    """gRPC channel arguments."""

    capacity: int
    """Calls that have brought their message and may wait at once, beside the first of each connection; more are refused
    as exhausted."""

    accept: Accept

    on_broken: Callable[[str], None]
    """A function to call with the peer of a call that brought no complete message, or too large a one."""

    security: PortSecurity | None = None
    """None: every caller is admitted, without encryption."""
