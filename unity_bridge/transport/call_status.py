"""The status with which a gRPC server answers a stranger: a call without content."""

from __future__ import annotations

import grpc

_OPTIONS = (("grpc.enable_http_proxy", 0),)


def call_status(address: str, method: str, *, token: str = "", timeout_s: float) -> str:
    """The status of one empty call of ``method`` (``/package.Service/Method``), in gRPC's words.

    ``UNAUTHENTICATED`` where the server wants another token, or any; ``UNAVAILABLE`` or ``DEADLINE_EXCEEDED`` where
    none answers; ``OK`` or what else it thinks of an empty message where it lets the caller in.
    """
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        try:
            call(b"", timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"
