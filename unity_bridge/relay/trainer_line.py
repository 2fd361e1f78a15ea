"""The line from the relay to the trainer, as one simulator uses it."""

from __future__ import annotations

import platform
import re
import secrets
from collections.abc import Callable

import grpc

from unity_bridge.simulators.conversation import goodbye
from unity_bridge.transport.endpoint import METHOD, SERVICE
from unity_bridge.transport.relayed_calls import EXCHANGE, LONGEST_REPORT, REPORT, SESSION

OpenChannel = Callable[[], grpc.Channel]
"""Opens a connection to the trainer of its own, with the options; see ``CHANNEL_OPTIONS``."""

LONGEST_CONNECT_S = 5.0
"""How long an attempt to connect may take; a call that took longer had a connection."""

GOODBYE_S = 2.0
"""How long the trainer may take to answer a goodbye."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.use_local_subchannel_pool", 1),  # the trainer limits the calls of each connection
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", int(LONGEST_CONNECT_S * 1000)),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A call waits as long as the trainer learns. Pings tell whether the line still stands.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""gRPC's channel arguments for a line to the trainer."""


class TrainerLine:
    """A connection to the trainer, and the numbers of the exchanges on it."""

    def __init__(self, channel: grpc.Channel, number: int) -> None:
        """number: the simulator's, on this machine."""
        self._channel = channel
        self._number = number
        self._exchange: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        self._session = ""
        self._count = 0
        self.begin_session()

    def begin_session(self) -> None:
        """Begins another conversation, which the trainer takes for another simulator."""
        host = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node())[:64] or "unknown-host"
        self._session = f"{host}/{self._number}-{secrets.token_hex(8)}"
        self._count = 0

    def count_exchange(self) -> None:
        """Gives the next message a number of its own; without it, the last one is sent again."""
        self._count += 1

    def send(self, data: bytes, on_reply: Callable[[grpc.Future], None]) -> grpc.Future:
        """Sends a message under the present number. ``on_reply`` is called in a thread of gRPC."""
        attempt: grpc.Future = self._exchange.future(data, metadata=self._metadata())
        attempt.add_done_callback(on_reply)
        return attempt

    def leave(self, report: str) -> None:
        """Says goodbye for the simulator, with a report for the trainer's log. Does not wait; ``close`` does."""
        self.count_exchange()
        metadata = (*self._metadata(), (REPORT, report.encode(errors="replace")[:LONGEST_REPORT]))
        self._goodbye: grpc.Future = self._exchange.future(goodbye(), metadata=metadata, timeout=GOODBYE_S)

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return (SESSION, self._session), (EXCHANGE, str(self._count))
