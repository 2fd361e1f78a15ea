"""What a stranger hears from gRPC servers that ask for a token, that do not, and that are not there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from unity_bridge.transport.call_status import call_status

METHOD = "/cluster.Nodes/CheckAlive"


class AsksForToken(grpc.GenericRpcHandler):
    """A server that lets in who says ``let me in``."""

    def service(self, call: Any) -> grpc.RpcMethodHandler | None:
        if call.method != METHOD:
            return None
        is_known = ("authorization", "Bearer let-me-in") in call.invocation_metadata
        return grpc.unary_unary_rpc_method_handler(answer if is_known else refuse)


def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
    return b""


def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")


@pytest.fixture
def address(processes: None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1), handlers=[AsksForToken()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("token", "status"), [("", "UNAUTHENTICATED"), ("guessed", "UNAUTHENTICATED"), ("let-me-in", "OK")]
)
def test_a_token_decides_what_is_answered(address: str, token: str, status: str) -> None:
    assert call_status(address, METHOD, token=token, timeout_s=10) == status


def test_another_error_is_told_as_it_is(address: str) -> None:
    assert call_status(address, "/cluster.Nodes/Other", timeout_s=10) == "UNIMPLEMENTED"


@pytest.mark.process
def test_nobody_who_listens_is_unavailable(free_port: int) -> None:
    assert call_status(f"127.0.0.1:{free_port}", METHOD, timeout_s=10) == "UNAVAILABLE"


@pytest.mark.process
def test_silence_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert call_status(address, METHOD, timeout_s=0.2) == "DEADLINE_EXCEEDED"
