"""Pings of a trainer on another machine: they test the token, and touch nothing of its run."""

from __future__ import annotations

import time
from typing import Self

import grpc

from unity_bridge.errors import RemoteError
from unity_bridge.remote.dialing import PinnedAddress, authorization
from unity_bridge.transport.service import PING_METHOD, PING_SERVICE


class PingRefused(RemoteError):
    """A token that the trainer does not accept."""


class Pinger:
    """A channel for pings, open as long as the context lasts."""

    def __init__(self, found: PinnedAddress, token: str) -> None:
        self._address = found.address
        self._channel = found.open_channel()
        self._metadata = authorization(token)
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            f"/{PING_SERVICE}/{PING_METHOD}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._channel.close()

    def ping(self, *, timeout_s: float) -> tuple[float, float]:
        """Returns the round trip, and by how much the trainer's clock is ahead of this one, in seconds.

        Raises:
            PingRefused: the trainer does not accept the token.
            RemoteError: it gives no answer in time, or one that is no time.
        """
        sent_at, began = time.time(), time.perf_counter()
        try:
            answer = self._call(b"", timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            kind = RemoteError if error.code().name in ("DEADLINE_EXCEEDED", "UNAVAILABLE") else PingRefused
            raise kind(f"{self._address}: {error.code().name}: {error.details()}") from None
        took_s = time.perf_counter() - began
        try:
            return took_s, float(answer) - (sent_at + took_s / 2)
        except ValueError:
            raise RemoteError(f"{self._address}: expected the time, got {answer[:40]!r}") from None
