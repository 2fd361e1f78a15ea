"""A unary gRPC server on grpcio's public interface: one parked thread for each call that waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from unity_bridge.inbox import Inbox

if TYPE_CHECKING:
    from unity_bridge.endpoint import Call

_FLUSH_S = 0.5


class ThreadedServer:
    """What any grpcio can do. A call changes threads five times on its way, so DirectServer is preferred."""

    def __init__(
        self,
        address: str,
        path: tuple[str, str],
        options: tuple[tuple[str, int], ...],
        inbox: Inbox,
        *,
        capacity: int,
        accept: Callable[[str, bytes, Callable[[bytes | str | None], None]], Call],
        on_hang_up: Callable[[Call], None],
    ) -> None:
        """Listens; see DirectServer, but any inbox will do. Raises RuntimeError if it cannot be bound."""
        self._accept = accept
        self._on_hang_up = on_hang_up
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="exchange")
        service, method = path
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._exchange)
        self._server = grpc.server(
            self._threads,
            handlers=[grpc.method_handlers_generic_handler(service, {method: handler})],
            options=options,
            maximum_concurrent_rpcs=capacity,
        )
        self.port: int = self._server.add_insecure_port(address)
        self._server.start()

    def stop(self) -> None:
        """Sends what has been answered, drops every other call and frees the port."""
        self._server.stop(_FLUSH_S).wait()
        self._threads.shutdown()

    def _exchange(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        # A queue, since an answer and a hang-up may race: the first wins, the other is never read.
        outcome: SimpleQueue[bytes | str | None] = SimpleQueue()
        calls: list[Call] = []
        returned = False

        def ended() -> None:
            if not returned and calls:
                outcome.put(None)
                self._on_hang_up(calls[0])

        if not context.add_callback(ended):
            return b""  # gone already
        calls.append(self._accept(context.peer(), data, outcome.put))
        answer = outcome.get()
        returned = True
        if isinstance(answer, str):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, answer)
        return answer or b""
