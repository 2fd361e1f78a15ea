"""The status with which a gRPC server answers a stranger: a call without credentials and without content."""

from __future__ import annotations

import grpc

_OPTIONS = (("grpc.enable_http_proxy", 0),)


def call_status(address: str, method: str, *, timeout_s: float) -> str:
    """The status of one call of ``method`` (``/package.Service/Method``) without credentials, in gRPC's words.

    ``UNAUTHENTICATED`` where the server asks for credentials, ``UNAVAILABLE`` or ``DEADLINE_EXCEEDED`` where none
    answers, ``OK`` or what else it thinks of an empty message where it lets anybody in.
    """
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        try:
            call(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"
