"""The join code: a text to copy, with all that a simulator on another machine needs to dial the trainer."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from dataclasses import dataclass
from typing import Self

from unity_bridge.errors import RemoteError
from unity_bridge.untrusted_text import quoted

JOIN_VARIABLE = "TRAINER_SERVICE_JOIN"
"""The environment variable for the code of ``--join`` without a value: a list of processes shows flags to everyone."""

LEAST_TOKEN, MOST_TOKEN = 16, 200
"""Characters of a token."""

_PREFIX = "TS1-"
_FINGERPRINT_BYTES = 32
_CHECKSUM_BYTES = 4
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class JoinCode:
    """The trainer's addresses, a token, and the fingerprint of the trainer's public key."""

    addresses: tuple[str, ...]
    """``HOST:PORT`` each, the likeliest first."""

    token: str

    fingerprint: bytes
    """The SHA-256 digest of the certificate's public key."""

    def __str__(self) -> str:
        return f"join code for {', '.join(self.addresses)}"  # without the token, wherever it is logged

    __repr__ = __str__

    @classmethod
    def given(cls, text: str) -> Self:
        """Reads the code that a flag names; that of the environment variable if the flag has no value.

        Raises:
            RemoteError: there is none, or it is no join code.
        """
        if text:
            return cls.parse(text)
        if not os.environ.get(JOIN_VARIABLE):
            raise RemoteError(
                f"--join: expected a code, or one in the environment variable {JOIN_VARIABLE}; got neither"
            )
        return cls.parse(os.environ[JOIN_VARIABLE])

    def text(self) -> str:
        """Returns the code as one word: ``TS1-…``."""
        token = self.token.encode("ascii")
        content = bytes([*self.fingerprint, len(token), *token, *",".join(self.addresses).encode()])
        return _PREFIX + base64.urlsafe_b64encode(content + _checksum(content)).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a code, spaces around it aside.

        Raises:
            RemoteError: the text is no join code, or a part of one.
        """
        word = text.strip()
        if not word.startswith(_PREFIX) or len(word) > _LONGEST:
            # Quoted only here: of a real code even a part is a secret.
            raise RemoteError(
                f"join code: expected {_PREFIX}… as the trainer prints it, got {quoted(word[:8])}"
            )
        try:
            body = word.removeprefix(_PREFIX)
            data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
            if checksum != _checksum(content):
                raise ValueError
            fingerprint, rest = content[:_FINGERPRINT_BYTES], content[_FINGERPRINT_BYTES:]
            token, addresses = rest[1 : 1 + rest[0]].decode("ascii"), rest[1 + rest[0] :].decode().split(",")
            if not is_token(token):
                raise ValueError
        except (ValueError, IndexError, binascii.Error):
            raise RemoteError(
                f"join code: {len(word)} characters that are not a whole code: copy all of {_PREFIX}…, on one line"
            ) from None
        for address in addresses:
            split_address(address)
        return cls(tuple(addresses), token, fingerprint)


def is_token(text: str) -> bool:
    """Whether a text can be a token: visible ASCII characters, as metadata of a call carry them."""
    return re.fullmatch(f"[!-~]{{{LEAST_TOKEN},{MOST_TOKEN}}}", text) is not None


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_CHECKSUM_BYTES]


def split_address(address: str) -> tuple[str, int]:
    """Returns the host and the port of ``HOST:PORT``, also of ``[::1]:5005``.

    Raises:
        RemoteError: it is no address with a port.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_host = bool(host) and host.isprintable()
    if not is_host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise RemoteError(f"address: expected HOST:PORT, got {quoted(address)}")
    return host, int(port)
