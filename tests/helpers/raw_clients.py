"""Clients that send any bytes, each on a connection of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import grpc

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
ANSWER_S = 60.0
"""How long an answer may take before it counts as none."""


class Refused(Exception):
    """A call came back with a status. The text is what the trainer said."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.code: grpc.StatusCode = error.code()
        super().__init__(str(error.details()))


class RawClient:
    """A connection to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
        self._exchange = self._channel.unary_unary(EXCHANGE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def say(self, data: bytes) -> bytes:
        """Sends a message and returns the answer. Raises Refused."""
        try:
            reply: bytes = self._exchange(data, timeout=ANSWER_S)
        except grpc.RpcError as error:
            raise Refused(error) from None
        return reply


def first_refusal(port: int, messages: Iterable[bytes]) -> Refused | None:
    """Sends the messages one after another on a connection. Returns the first refusal; None without one."""
    with RawClient(port) as caller:
        for message in messages:
            try:
                caller.say(message)
            except Refused as refused:
                return refused
    return None
