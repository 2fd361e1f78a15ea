"""What of grpcio's core our own server stands on.

``grpc._cython.cygrpc`` is what grpcio's public server is written with. It is not a promised interface, so
``usable`` is asked before anything is built on it; there is a server on the public interface besides.
"""

from __future__ import annotations

try:
    from grpc._cython import cygrpc  # type: ignore[attr-defined]  # compiled, without types
except ImportError:  # another grpcio than those we know
    cygrpc = None

__all__ = ["cygrpc", "usable"]

_NEEDED = (
    "CompletionQueue", "CompletionType", "Server", "StatusCode", "ReceiveCloseOnServerOperation",
    "ReceiveMessageOperation", "SendInitialMetadataOperation", "SendMessageOperation",
    "SendStatusFromServerOperation",
)  # fmt: skip


def usable() -> bool:
    """Whether the installed grpcio has everything that is needed."""
    return cygrpc is not None and all(hasattr(cygrpc, name) for name in _NEEDED)
