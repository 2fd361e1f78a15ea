"""The gRPC edge: a port, with calls that wait in the inbox until the bridge answers them.

Bytes go in and out as they are; the reader of the inbox parses them.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

from unity_bridge.errors import BridgeError
from unity_bridge.steps import Actions, Steps
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.transport import limits
from unity_bridge.transport.direct_server import DirectServer
from unity_bridge.transport.inbox import Inbox
from unity_bridge.transport.ports import address_of, require_free
from unity_bridge.transport.service import Metadata, PortSecurity, Respond, Service
from unity_bridge.transport.threaded_server import ThreadedServer

LOGGER = logging.getLogger(__name__)

SERVICE = "communicator_objects.UnityToExternalProto"
METHOD = "Exchange"

# gRPC carries a status text as a header of up to 12 bytes per character, and clients take headers of 8 KiB.
REFUSAL_CHARACTERS = 600


class CallSource(Hashable, Protocol):
    """The place that a call comes from: an endpoint, or a simulator in its stead."""

    @property
    def port(self) -> int: ...


class Call:
    """One message of one simulator, and the way back."""

    __slots__ = ("_respond", "data", "endpoint", "peer")

    def __init__(
        self, endpoint: CallSource, peer: str, data: bytes | Steps, respond: Callable[[Any], None]
    ) -> None:
        self.endpoint = endpoint
        self.peer = peer
        """The caller as gRPC names it: stable for one connection."""
        self.data = data
        """The message; steps as they are where it comes from this process. Empty once it is read or answered: it may
        be large, and the call stays with its simulator until the next one."""
        self._respond = respond

    def answer(self, data: bytes | Actions) -> None:
        """Sends a message back, or actions for steps as they are. Whatever follows, the first response counts."""
        self.data = b""
        self._respond(data)

    def refuse(self, text: str) -> None:
        """Fails the call with status INVALID_ARGUMENT and this text."""
        self.data = b""
        self._respond(text[:REFUSAL_CHARACTERS])


@dataclass(frozen=True, slots=True, eq=False)
class HangUp:
    """The event that the client of a call is gone before the call was over."""

    call: Call


MakeRelayed = Callable[[CallSource, bytes, Respond, Metadata], Call | None]
"""Returns the call of a relay by its metadata; None for a simulator's own call."""


class Endpoint:
    """A port that accepts any number of simulators and puts everything they say into an inbox."""

    def __init__(
        self,
        host: str,
        port: int,
        inbox: Inbox,
        *,
        capacity: int,
        security: PortSecurity | None = None,
        make_relayed: MakeRelayed | None = None,
    ) -> None:
        """Listens.

        Args:
            host: address or name to bind.
            port: 0 lets the system choose.
            inbox: where Calls and HangUps go; its reader serves, if it reads gRPC's core.
            capacity: calls that may wait at once, beside the first of each connection. More are refused.
            security: TLS, and who may call; None admits every caller, without encryption.
            make_relayed: recognizes the calls of relays; None where none may call.

        Raises:
            PortInUse: another process listens there.
            BridgeError: the address cannot be bound for another reason.
        """
        if port:
            require_free(host, port)
        self.host = host
        self._inbox = inbox
        self._make_relayed = make_relayed
        self._throttled = ThrottledLogger(LOGGER)
        serve = DirectServer if inbox.serves_directly else ThreadedServer
        try:
            self._server = serve(
                Service(
                    address=address_of(host, port),
                    name=SERVICE,
                    method=METHOD,
                    options=limits.channel_options(capacity),
                    capacity=capacity,
                    accept=self._accept,
                    on_broken=self._on_broken,
                    security=security,
                ),
                inbox,
            )
        except RuntimeError as error:
            raise BridgeError(f"{address_of(host, port)}: cannot listen: {error}") from error
        self.port = self._server.port

    @property
    def address(self) -> str:
        """The host and port on which it listens."""
        return address_of(self.host, self.port)

    def stop(self) -> None:
        """Sends the ready answers, drops every other call and frees the port."""
        self._server.stop()

    def _accept(self, peer: str, data: bytes, respond: Respond, metadata: Metadata) -> Callable[[], None]:
        if self._make_relayed and (relayed := self._make_relayed(self, data, respond, metadata)):
            self._inbox.put(relayed)
            return lambda: None  # the relay sends the exchange again; one that does not is timed out
        call = Call(self, peer, data, respond)
        self._inbox.put(call)
        return lambda: self._inbox.put(HangUp(call))

    def _on_broken(self, peer: str) -> None:
        self._throttled.log(
            "broken",
            f"{self.address}: a message of {readable(peer)} did not arrive: it was larger than "
            f"{limits.LARGEST_MESSAGE >> 20} MiB, or compressed and larger than {limits.LARGE_MESSAGE >> 20} MiB, or "
            "its sender broke it off",
        )


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach a port that listens on an address or name.

    This is true of an unknown name: nothing can listen there.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return True
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    return all(address.is_loopback for address in addresses)


def readable(peer: str) -> str:
    """Returns a peer, as gRPC names it, for people: ``ipv6:%5B::1%5D:50123`` as ``[::1]:50123``.

    Of a relayed one its host and number: the digits behind them are its secret, and this goes into logs.
    """
    family, _, address = unquote(peer).partition(":")
    return address.rpartition("-")[0] if family == "relay" else address
