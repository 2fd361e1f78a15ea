"""The client's side: a channel to the trainer of a join code, whose certificate is checked before the token is sent."""

from __future__ import annotations

import hmac
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc

from unity_bridge.errors import RemoteError
from unity_bridge.remote.certificate import Certificate
from unity_bridge.remote.join_code import JoinCode, split_address
from unity_bridge.transport.endpoint import METHOD, SERVICE
from unity_bridge.transport.service import WAIT
from unity_bridge.untrusted_text import first_line

Metadata = Sequence[tuple[str, str]]

EXCHANGE = f"/{SERVICE}/{METHOD}"

DIAL_S = 5.0
"""How long each address may take to answer."""

READMISSION_S, _READMISSION_PAUSE_S = 10.0, 0.5
"""How long a token that was accepted before is sent again when it is refused: its file may just be rewritten."""

_admitted: set[JoinCode] = set()
"""Codes whose token was accepted in this process."""

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a proxy for the internet would swallow the way to this machine
    # The trainer may start after us: look again soon, not after gRPC's growing pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 5000),  # the time that an attempt may take
    # Two clients of one process must not share a connection: the trainer tells simulators apart by it.
    ("grpc.use_local_subchannel_pool", 1),
)

KEEPALIVE = (
    # A call waits as long as the trainer learns: pings tell whether the line still stands. Only for lines over a
    # network: on one machine they would tell nothing but that the trainer is stopped, and other servers forbid them.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
)


class TrainerUnreachable(RemoteError):
    """None of the trainer's addresses answers, or it asks to wait; it may answer later."""

    wait_s = 0.0
    """Seconds that the trainer asks to wait."""


class CertificateMismatch(RemoteError):
    """Another server than the trainer of the join code answers."""


@dataclass(frozen=True, slots=True)
class PinnedAddress:
    """An address where the trainer of a join code was found."""

    address: str
    certificate: Certificate
    name: str
    """A name that the certificate is issued for."""

    def open_channel(self) -> grpc.Channel:
        """Opens a channel that accepts this certificate and no other."""
        return grpc.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(self.certificate.pem.encode()),
            options=[*CHANNEL_OPTIONS, *KEEPALIVE, ("grpc.ssl_target_name_override", self.name)],
        )


def find_trainer(code: JoinCode, address: str | None = None, *, timeout_s: float = DIAL_S) -> PinnedAddress:
    """Finds the first address of a join code that answers with the code's certificate. Sends no token.

    Args:
        code: the join code.
        address: ``HOST:PORT`` to try in place of the code's own addresses.
        timeout_s: how long each address may take.

    Raises:
        TrainerUnreachable: no address answers.
        CertificateMismatch: another certificate answers, or one that is not valid now.
        RemoteError: the address is not ``HOST:PORT``.
    """
    failures: list[RemoteError] = []
    for each in [address] if address else code.addresses:
        try:
            return _pin(each, code.fingerprint, timeout_s)
        except RemoteError as error:
            failures.append(error)
    # Another server at one address says nothing of the others, but more than an address without any.
    failures.sort(key=lambda error: not isinstance(error, CertificateMismatch))
    raise type(failures[0])("; ".join(str(error) for error in failures))


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """Returns the metadata that carry a token."""
    return (("authorization", f"Bearer {token}"),)


class PlainConnection:
    """Messages to a trainer on this machine, or at the other end of a tunnel, without encryption."""

    def __init__(self, address: str) -> None:
        """Prepares; the first exchange connects. address: ``HOST:PORT``."""
        self.address = address
        """Where the trainer was found, or is looked for first."""
        self._channel: grpc.Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def exchange(self, data: bytes, timeout: float | None = None, metadata: Metadata = ()) -> bytes:
        """Sends a message and returns the reply. timeout: seconds; None waits without an end.

        Raises:
            grpc.RpcError: the call failed. UNAUTHENTICATED is a refused token, UNAVAILABLE a broken connection.
            ValueError: it was closed meanwhile.
        """
        if self._channel is None:
            self._channel = self._open()
            self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(EXCHANGE)
        return self._call(data, timeout=timeout, metadata=tuple(metadata))

    def close(self) -> None:
        """Closes the channel; a call that waits on it fails, and the next exchange opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _open(self) -> grpc.Channel:
        return grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)


class TrainerConnection(PlainConnection):
    """Messages to the trainer of a join code, over a channel that is opened again whenever it broke.

    Opening it again reads the certificate again: the trainer may have renewed it, for the same key.
    """

    def __init__(self, code: JoinCode, address: str | None = None, *, timeout_s: float = DIAL_S) -> None:
        """Prepares; the first exchange dials. The arguments are those of ``find_trainer``."""
        super().__init__(address or code.addresses[0])
        self.code = code
        self._given = address
        self._timeout_s = timeout_s
        self._closed = threading.Event()

    def exchange(self, data: bytes, timeout: float | None = None, metadata: Metadata = ()) -> bytes:
        """Sends a message and returns the reply, as ``PlainConnection``. The token goes with it.

        Raises:
            TrainerUnreachable: as ``find_trainer``, or the trainer asks to wait; it has not read the message.
            CertificateMismatch: as ``find_trainer``.
        """
        until = time.monotonic() + (READMISSION_S if timeout is None else 0.0)
        while True:
            try:
                reply = super().exchange(data, timeout, (*authorization(self.code.token), *metadata))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    self.close()
                asked_s = next((each.value for each in error.trailing_metadata() if each.key == WAIT), None)
                is_refused = asked_s is not None or error.code() is grpc.StatusCode.UNAUTHENTICATED
                may_again = is_refused and self.code in _admitted and time.monotonic() < until
                if may_again and not self._closed.wait(_READMISSION_PAUSE_S):
                    continue
                if asked_s is None:
                    raise
                later = TrainerUnreachable(f"{self.address}: {error.details()}")
                later.wait_s = float(asked_s)
                raise later from None
            _admitted.add(self.code)
            return reply

    __call__ = exchange

    def close(self) -> None:
        self._closed.set()
        super().close()

    def _open(self) -> grpc.Channel:
        self._closed.clear()
        found = find_trainer(self.code, self._given, timeout_s=self._timeout_s)
        self.address = found.address
        return found.open_channel()


def _pin(address: str, fingerprint: bytes, timeout_s: float, *, again: bool = True) -> PinnedAddress:
    """Reads the certificate at an address and compares it with a fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # compared below
    der, _ = _handshake(address, context, timeout_s)
    try:
        certificate = Certificate.read(der)
    except ValueError as error:
        raise CertificateMismatch(f"{address}: its certificate is {error}") from None
    if not hmac.compare_digest(certificate.fingerprint, fingerprint):
        raise CertificateMismatch(
            f"{address}: expected the certificate {fingerprint.hex()[:16]}… of the join code, got "
            f"{certificate.fingerprint.hex()[:16]}…: another server, or another trainer than the code is of; "
            "no token was sent"
        )
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # also one that an authority has signed
    trusting.load_verify_locations(cadata=certificate.der)
    try:
        _, name = _handshake(address, trusting, timeout_s)
    except CertificateMismatch:
        if not again:
            raise
        return _pin(address, fingerprint, timeout_s, again=False)  # it was renewed between the two
    return PinnedAddress(address, certificate, name)


def _handshake(address: str, context: ssl.SSLContext, timeout_s: float) -> tuple[bytes, str]:
    """Returns the certificate of a server, and a name in it if the context verifies."""
    context.set_alpn_protocols(["h2"])
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), timeout_s) as line, context.wrap_socket(line) as tls:
            der, read = tls.getpeercert(binary_form=True), tls.getpeercert()
    except ssl.SSLCertVerificationError as error:
        raise CertificateMismatch(
            f"{address}: its certificate is not valid: {error.verify_message}"
        ) from None
    except (ssl.SSLError, ConnectionResetError) as error:
        raise TrainerUnreachable(f"{address}: no TLS: {first_line(error)}") from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise TrainerUnreachable(f"{address}: cannot connect: {reason}") from None
    return der or b"", _name_in(read or {}, host)


def _name_in(certificate: Mapping[str, Any], host: str) -> str:
    """Returns a name that a certificate is issued for: an alternative name, or the common name of older ones."""
    names = [value for _, value in certificate.get("subjectAltName", ())]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]).replace("*", "x") if names else host
