"""The trainer's side: a port that other machines reach, with TLS and tokens, and its join code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from unity_bridge.errors import RemoteError
from unity_bridge.remote.addresses import reachable_addresses
from unity_bridge.remote.admission import Admission
from unity_bridge.remote.join_code import JoinCode
from unity_bridge.remote.key_pair import GivenKeyPair, KeyPair, KeyPairSource, OwnKeyPair
from unity_bridge.remote.private_files import user_folder
from unity_bridge.remote.tokens import TokenFile
from unity_bridge.transport.service import Refusal

LOGGER = logging.getLogger(__name__)

SECRET = {"is_secret": True}
"""Marks a log record that is for the console alone, never for a file that may be passed on."""


class RemoteAccess:
    """TLS, tokens and the join code of a port that is open to other machines.

    Certificate and tokens are read again while the port is open, whenever their files change or end.
    """

    def __init__(self, key_pairs: KeyPairSource, tokens: TokenFile) -> None:
        """Reads, or makes, the certificate.

        Raises:
            RemoteError: it cannot be read or made.
        """
        self._key_pairs = key_pairs
        self._tokens = tokens
        self._admission = Admission(tokens)
        self.admits = self._admission.admits
        self._pair = key_pairs.load()
        self._version = key_pairs.version()
        self._offered = self._pair
        """The key pair that gRPC has."""
        self._lock = threading.Lock()
        self._addresses: tuple[str, ...] = ()
        self._announced = ""
        self.credentials = grpc.dynamic_ssl_server_credentials(_configuration(self._pair), self._changed)

    @classmethod
    def open(
        cls, *, tls_cert: Path | None = None, tls_key: Path | None = None, token_file: Path | None = None
    ) -> RemoteAccess:
        """Reads the given files and makes the missing ones, in the folder of this user.

        Raises:
            RemoteError: a file cannot be used, or a certificate not be made.
        """
        folder = user_folder() / "remote"
        tokens = TokenFile(token_file or folder / "tokens")
        if (tls_cert is None) != (tls_key is None):
            raise RemoteError("--tls-cert and --tls-key: expected both or none, got one of them")
        if tls_cert is not None and tls_key is not None:
            return cls(GivenKeyPair(tls_cert, tls_key), tokens)
        return cls(OwnKeyPair(folder / "trainer.pem"), tokens)

    def refusal(self, peer: str, metadata: Sequence[tuple[str, str | bytes]]) -> Refusal | None:
        """Returns the answer to a call that is refused; None if it is admitted. See ``Admission``."""
        return self._admission.refusal(peer, metadata)

    def watch(self, now: float) -> None:
        """Reports refused calls and looks for changed files; called about once a second while the port is open."""
        self._admission.report()
        self._tokens.refresh()
        if (version := self._key_pairs.version()) != self._version:
            self._version = version
            try:
                self._pair = self._key_pairs.load()
                self._version = self._key_pairs.version()
            except RemoteError as error:
                LOGGER.warning("The certificate stays as it was: %s", error)
        self._announce()

    def close(self) -> None:
        """Reports the calls that were refused since the last report; called when the port closes."""
        self._admission.report(is_last=True)

    def announce(
        self,
        host: str,
        port: int,
        whom: str = "simulators of other machines: mlagents-style simulate ENV --join CODE",
    ) -> None:
        """Logs the join code of the port, and until when it holds. whom: its users, in words."""
        self._addresses = reachable_addresses(host, port)
        LOGGER.info(
            "Listening on port %d with TLS and a token, for %s. To revoke the token, remove it from '%s'; a deleted "
            "file is made again with another one.",
            port, whom, self._tokens.path,
        )  # fmt: skip
        self._announce()

    def join_code(self) -> JoinCode | None:
        """Returns the join code that holds now; None while no token does."""
        token = self._tokens.newest
        if token is None:
            return None
        return JoinCode(self._addresses, token.text, self._pair.certificate.fingerprint)

    def _announce(self) -> None:
        """Logs the join code where it is not the one that was logged."""
        code = self.join_code()
        text = code.text() if code and self._addresses else ""
        if not text or text == self._announced:
            return
        token = self._tokens.newest
        end = f"{token.ends:%Y-%m-%d}" if token and token.ends else "it is removed"
        LOGGER.info(
            "The token holds until %s, the certificate until %s.%s",
            end, f"{self._pair.certificate.ends:%Y-%m-%d}",
            " The join code is another one now." if self._announced else "",
        )  # fmt: skip
        LOGGER.info("join: %s", text, extra=SECRET)
        self._announced = text

    def _changed(self) -> Any:  # the stubs of grpc know no None here
        """Returns the certificate for a handshake where it is another one, or None; called in gRPC's threads."""
        with self._lock:
            if self._offered is self._pair:
                return None
            self._offered = self._pair
            return _configuration(self._offered)


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)])
