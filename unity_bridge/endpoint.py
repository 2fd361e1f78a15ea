"""The gRPC edge: a port whose calls are parked until somebody answers them.

A gRPC thread puts the call into the inbox and sleeps until it is answered, its client is gone or the endpoint
stops; it does nothing else. Bytes go in and out as they are: who reads the inbox parses.
"""

from __future__ import annotations

import errno
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import grpc

from unity_bridge.errors import BridgeError, PortInUse

SERVICE = "communicator_objects.UnityToExternalProto"
METHOD = "Exchange"

# gRPC carries a status text as a header of up to 12 bytes per character, and clients take headers of 8 KiB.
_REFUSAL_CHARACTERS = 600
_FLUSH_S = 0.5


class Call:
    """One message of one simulator, and the way back."""

    __slots__ = ("_outcome", "data", "endpoint", "has_returned", "peer")

    def __init__(self, endpoint: Endpoint, peer: str, data: bytes) -> None:
        self.endpoint = endpoint
        self.peer = peer
        """Who calls, as gRPC names it: stable for one connection."""
        self.data = data
        self.has_returned = False
        """Set by the parked thread once its part is done, so that the end of the call is no news."""
        # A queue, since an answer and a hang-up may race: the first wins, the other is never read.
        self._outcome: SimpleQueue[bytes | str | None] = SimpleQueue()

    def answer(self, data: bytes) -> None:
        """Sends a message back."""
        self._outcome.put(data)

    def refuse(self, text: str) -> None:
        """Fails the call with status INVALID_ARGUMENT and this text."""
        self._outcome.put(text[:_REFUSAL_CHARACTERS])

    def abandon(self) -> None:
        """Lets the parked thread go: nobody listens any more."""
        self._outcome.put(None)

    def wait(self) -> bytes | str | None:
        """What became of the call: a message, a refusal, or nobody there. For the parked thread."""
        return self._outcome.get()


@dataclass(frozen=True, slots=True, eq=False)
class HangUp:
    """The client of a call is gone, and the call was not over."""

    call: Call


class Endpoint:
    """A port that accepts any number of simulators and puts everything they say into an inbox."""

    def __init__(self, host: str, port: int, inbox: SimpleQueue[Any], *, capacity: int) -> None:
        """Listens.

        Args:
            host: address or name to bind.
            port: 0 lets the system choose.
            inbox: where Calls and HangUps go.
            capacity: calls that may be parked at once; each holds a thread. More are refused.

        Raises:
            PortInUse: another process listens there.
            BridgeError: the address cannot be bound for another reason.
        """
        if port:
            _probe(host, port)
        self.host = host
        self._inbox = inbox
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="exchange")
        self._server = grpc.server(
            self._threads,
            handlers=[
                grpc.method_handlers_generic_handler(
                    SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(self._exchange)}
                )
            ],
            options=(
                ("grpc.so_reuseport", 0),  # else two trainers share a port, and simulators, without a word
                ("grpc.max_receive_message_length", -1),  # pictures pass the default of 4 MiB
                ("grpc.max_send_message_length", -1),
            ),
            maximum_concurrent_rpcs=capacity,
        )
        try:
            self.port: int = self._server.add_insecure_port(_address(host, port))
        except RuntimeError as error:
            raise BridgeError(f"{_address(host, port)}: cannot listen: {error}") from error
        self._server.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return _address(self.host, self.port)

    def stop(self) -> None:
        """Sends what has been answered, drops every other call and frees the port."""
        stopped = self._server.stop(_FLUSH_S)
        stopped.wait()
        self._threads.shutdown()

    def _exchange(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        call = Call(self, context.peer(), data)
        if not context.add_callback(lambda: self._ended(call)):
            return b""  # gone already
        self._inbox.put(call)
        outcome = call.wait()
        call.has_returned = True
        if isinstance(outcome, str):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, outcome)
        return outcome or b""

    def _ended(self, call: Call) -> None:
        if not call.has_returned:
            call.abandon()
            self._inbox.put(HangUp(call))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _probe(host: str, port: int) -> None:
    """Binds the port for a moment, because gRPC does not tell why it could not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            if os.name == "posix":  # on Windows the option would let us take the port from its owner
                # As gRPC does, so that connections of an earlier run that still linger do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{_address(host, port)} is in use by another process: stop that one (another training run?) "
                "or use another port"
            ) from error
        raise BridgeError(f"{_address(host, port)}: cannot listen: {error.strerror or error}") from error
