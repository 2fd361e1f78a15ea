"""The gRPC server of policies, with the standard services for health checks and reflection, in one event loop.

With batches of requests, threads served as many calls as the event loop did, but each stream occupies a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from unity_bridge.errors import BridgeError
from unity_bridge.serving.messages import CallRefused, PolicyAnswer, PolicyRequest, decode, encode
from unity_bridge.transport.endpoint import REFUSAL_CHARACTERS
from unity_bridge.transport.limits import channel_options
from unity_bridge.transport.ports import address_of, require_free
from unity_bridge.transport.service import PortSecurity
from unity_bridge.wire import policy_service_pb2 as wire

SERVICE = wire.DESCRIPTOR.services_by_name["PolicyService"].full_name

MOST_CALLS = 4096
"""Calls and streams at once."""

_OPTIONS = dict(channel_options(MOST_CALLS)) | {
    "grpc.max_receive_message_length": 64 * 2**20,  # 760 callers with 84 x 84 floats in three channels
    "grpc.per_message_decompression": 1,  # to that length at most
    "grpc.max_concurrent_streams": 1024,  # of one connection
}
_GRACE_S = 1.0

Act = Callable[[PolicyRequest], Awaitable[PolicyAnswer]]
Context = grpc.aio.ServicerContext[Any, Any]


@asynccontextmanager
async def policy_server(host: str, port: int, act: Act, security: PortSecurity | None) -> AsyncIterator[int]:
    """A context in which a port is open; returns its number.

    Args:
        host, port: where to listen; 0 lets the system choose a port.
        act: decides. Raises CallRefused for a call that is answered with a status.
        security: TLS and tokens; None admits every caller, without encryption.

    Raises:
        PortInUse, BridgeError: the address cannot be bound.
    """

    async def once(data: bytes, context: Context) -> bytes:
        try:
            return encode(await act(decode(data)))
        except CallRefused as error:
            await context.abort(grpc.StatusCode[error.status], str(error)[:REFUSAL_CHARACTERS])

    async def stream(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        async for data in requests:
            yield await once(data, context)

    if port:
        require_free(host, port)
    checks = [_TokenCheck(security)] if security else []
    server = grpc.aio.server(None, (), checks, [*_OPTIONS.items()], MOST_CALLS)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Act": grpc.unary_unary_rpc_method_handler(once),
        "ActStream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    states = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(states, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address, credentials = address_of(host, port), security and security.credentials
    try:
        port = (
            server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        )
    except RuntimeError as error:
        raise BridgeError(f"{address}: cannot listen: {error}") from error
    await server.start()
    for name in ("", SERVICE):
        await states.set(name, health_pb2.HealthCheckResponse.SERVING)
    watch = asyncio.create_task(_watch(security)) if security else None
    try:
        yield port
    finally:
        await states.enter_graceful_shutdown()
        await server.stop(_GRACE_S)
        if watch and security:
            watch.cancel()
            security.close()


async def _watch(security: PortSecurity) -> None:
    while True:
        security.watch(time.monotonic())
        await asyncio.sleep(1.0)


class _TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses calls of any service without a valid token, before their message is read."""

    def __init__(self, security: PortSecurity) -> None:
        self._security = security

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        if self._security.admits(details.invocation_metadata or ()):
            return await continuation(details)
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        if refused := self._security.refusal(context.peer(), tuple(context.invocation_metadata() or ())):
            await context.abort(refused.code, refused.why, refused.metadata)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "its token is valid only now: try again")
        yield b""
