"""The parts of an X.509 certificate that a connection depends on: its public key and its dates.

Python's own ``ssl`` reads them of verified certificates only, and the public key of none.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

_CONTEXT_0 = 0xA0
_UTC_TIME = 0x17


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate: its bytes and its parsed fields."""

    der: bytes
    fingerprint: bytes
    """The SHA-256 digest of the public key with its algorithm (SubjectPublicKeyInfo)."""
    ends: datetime

    @property
    def pem(self) -> str:
        """The certificate as text."""
        return ssl.DER_cert_to_PEM_cert(self.der)

    @classmethod
    def read(cls, der: bytes) -> Self:
        """Reads a certificate. Raises ValueError for bytes that are none."""
        try:
            ((_, whole, _),) = _elements(der)
            fields = list(_elements(next(_elements(whole))[1]))
            if fields[0][0] == _CONTEXT_0:  # the version, which the oldest certificates lack
                del fields[0]
            _, _, _, (_, dates, _), _, (_, _, public_key) = fields[:6]
            _, (kind, ends, _) = _elements(dates)
        except (ValueError, IndexError, StopIteration) as error:
            raise ValueError("not an X.509 certificate") from error
        form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return cls(
            der,
            hashlib.sha256(public_key).digest(),
            datetime.strptime(ends.decode("ascii"), form).replace(tzinfo=UTC),
        )


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the elements of a DER sequence: the tag, the content, and the element as a whole."""
    start = 0
    while start < len(data):
        tag, length, begin = data[start], data[start + 1], start + 2
        if length >= 0x80:  # so many bytes hold the length
            begin += length - 0x80
            length = int.from_bytes(data[start + 2 : begin], "big")
        end = begin + length
        if end > len(data):
            raise ValueError("cut off")
        yield tag, data[begin:end], data[start:end]
        start = end
