"""The trainer's certificate and private key: made and renewed by the trainer, or given by the user."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from unity_bridge.errors import RemoteError
from unity_bridge.extras import install_hint
from unity_bridge.remote.certificate import Certificate
from unity_bridge.remote.private_files import LIFETIME, RENEWAL, read_private, version_of, write_private
from unity_bridge.untrusted_text import first_line

LOGGER = logging.getLogger(__name__)

NAME = "trainer-service"
"""The name that it is issued for; clients check the key instead."""

_END = "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificates, the server's first, in PEM."""

    key: bytes
    chain: bytes
    certificate: Certificate

    def __repr__(self) -> str:
        return f"key pair until {self.certificate.ends}"


class KeyPairSource(Protocol):
    """A source of key pairs."""

    def load(self) -> KeyPair:
        """Returns the key pair as it is now.

        Raises:
            RemoteError: it cannot be read or made, or is not one.
        """

    def version(self) -> object:
        """Returns a value that changes when ``load`` would return another one, and every day, for the end of it."""


class GivenKeyPair(KeyPairSource):
    """Files of the user: a certificate, with its chain if an authority has signed it, and its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key

    def load(self) -> KeyPair:
        try:
            pair = _key_pair(read_private(self._key), self._certificate.read_bytes())
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self._certificate, self._key, password=lambda: ""
            )
        except (ssl.SSLError, ValueError) as error:
            raise RemoteError(
                f"'{self._certificate}' and '{self._key}': expected a certificate and its private key in PEM, without "
                f"a password, got: {first_line(error)}"
            ) from error
        except OSError as error:
            raise RemoteError(f"'{error.filename}': cannot read it: {error.strerror or error}") from error
        if pair.certificate.ends <= datetime.now(UTC):
            ended = f"{pair.certificate.ends:%Y-%m-%d}"
            LOGGER.warning("'%s' has ended on %s: every client refuses it.", self._certificate, ended)
        return pair

    def version(self) -> object:
        return version_of(self._certificate), version_of(self._key), datetime.now(UTC).date()


class OwnKeyPair(KeyPairSource):
    """A key in a file of this user, with a certificate that it signs itself. Made if there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> KeyPair:
        try:
            pair = self._read()
        except FileNotFoundError:
            write_private(self.path, make_key_pair(), replace=False)
            pair = self._read()
        if datetime.now(UTC) >= pair.certificate.ends - RENEWAL:
            write_private(self.path, make_key_pair(pair.key), replace=True)
            pair = self._read()
            LOGGER.info(
                "The certificate is renewed until %s, for the same key.", f"{pair.certificate.ends:%Y-%m-%d}"
            )
        return pair

    def version(self) -> object:
        return version_of(self.path), datetime.now(UTC).date()

    def _read(self) -> KeyPair:
        content = read_private(self.path)
        try:
            return _key_pair(content, content)
        except ValueError as error:
            raise RemoteError(f"'{self.path}': {error}: delete the file for a new key") from error


def _key_pair(key: bytes, chain: bytes) -> KeyPair:
    """Reads a key pair from PEM. Raises ValueError."""
    try:
        text = chain.decode("ascii")
        start = text.index("-----BEGIN CERTIFICATE-----")
        first = text[start : text.index(_END, start) + len(_END)]
        certificate = Certificate.read(ssl.PEM_cert_to_DER_cert(first))
    except ValueError as error:
        raise ValueError("no certificate in PEM") from error
    return KeyPair(key, text[start:].encode(), certificate)


def make_key_pair(key_pem: bytes | None = None) -> bytes:
    """Makes a private key and a certificate signed by it, in one PEM text.

    key_pem: a text with a key to make another certificate for.

    Raises:
        RemoteError: the package for it is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise RemoteError(
            "to make a certificate the package cryptography is needed, which is not installed "
            f"({first_line(error)}): {install_hint('remote')}, give --tls-cert and --tls-key, or say "
            "--insecure-listen in a network that you trust"
        ) from error
    key: Any = (
        ec.generate_private_key(ec.SECP256R1())
        if key_pem is None
        else serialization.load_pem_private_key(key_pem, password=None)
    )
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return bytes(private + certificate.public_bytes(pem))
