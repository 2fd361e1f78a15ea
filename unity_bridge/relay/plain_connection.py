"""A connection to a trainer on this machine, or at the other end of a tunnel, without encryption."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from unity_bridge.remote.dialing import CHANNEL_OPTIONS, EXCHANGE


class PlainConnection:
    """Messages to the trainer at a loopback address."""

    def __init__(self, address: str) -> None:
        """Prepares; the first exchange connects. address: ``HOST:PORT``."""
        self.address = address
        self._channel: grpc.Channel | None = None

    def exchange(
        self, data: bytes, timeout: float | None = None, metadata: Sequence[tuple[str, str]] = ()
    ) -> bytes:
        """Sends a message and returns the reply. Raises grpc.RpcError; ValueError where it is closed meanwhile."""
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
            self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(EXCHANGE)
        return self._call(data, timeout=timeout, metadata=tuple(metadata))

    def close(self) -> None:
        """Closes the channel; the next exchange opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
