"""A unary gRPC server that answers from whatever thread has the answer.

grpcio's public server hands each call to a thread pool and between its threads, five times before the answer
leaves, and every hand-over wakes a sleeping core: of the 350 µs of an idle machine's exchange two thirds are
that. This one has a single thread, which waits for events; a message goes straight into the inbox, and the
answer is given to gRPC's core by the thread that made it.

It stands on ``grpc._cython.cygrpc``, which grpcio's own server is written with. That is not a promised
interface, so ``usable`` is asked first, and ThreadedServer does the same on the public one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

try:
    from grpc._cython import cygrpc  # type: ignore[attr-defined]  # compiled, without types
except ImportError:  # another grpcio than those we know
    cygrpc = None

if TYPE_CHECKING:
    from unity_bridge.endpoint import Call

_NEEDED = (
    "CompletionQueue", "CompletionType", "Server", "StatusCode", "ReceiveCloseOnServerOperation",
    "ReceiveMessageOperation", "SendInitialMetadataOperation", "SendMessageOperation",
    "SendStatusFromServerOperation",
)  # fmt: skip
_FLUSH_S = 0.5
_NO_FLAGS = 0


def usable() -> bool:
    """Whether the installed grpcio has everything that this server stands on."""
    return cygrpc is not None and all(hasattr(cygrpc, name) for name in _NEEDED)


class DirectServer:
    """Listens on one address for one unary method."""

    def __init__(
        self,
        address: str,
        path: tuple[str, str],
        options: tuple[tuple[str, int], ...],
        *,
        capacity: int,
        accept: Callable[[str, bytes, Callable[[bytes | str | None], None]], Call],
        on_hang_up: Callable[[Call], None],
    ) -> None:
        """Listens.

        Args:
            address: host and port; port 0 lets the system choose.
            path: service and method; any other is unimplemented.
            options: gRPC channel arguments.
            capacity: calls that may wait at once; more are refused as exhausted.
            accept: told of each message, in the server's thread: peer, data, and how to respond (bytes answer,
                a text refuses, None lets go). Returns the call that hang-ups will name.
            on_hang_up: told of a call whose client is gone before it was responded to.

        Raises:
            RuntimeError: the address cannot be bound.
        """
        self._path = f"/{path[0]}/{path[1]}".encode()
        self._capacity = capacity
        self._accept = accept
        self._on_hang_up = on_hang_up
        self._open = 0
        self._stopped = threading.Event()
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(options, False)
        self._server.register_completion_queue(self._queue)
        self.port: int = self._server.add_http2_port(address.encode())
        if not self.port:
            self._server.start()  # a server that was never started cannot be shut down
            self._begin_thread()
            self.stop()
            raise RuntimeError(f"failed to bind to address {address}")
        self._server.start()
        self._request_call()
        self._begin_thread()

    def stop(self) -> None:
        """Sends what has been answered, drops every other call and frees the port."""
        self._server.shutdown(self._queue, self._end)
        if not self._stopped.wait(_FLUSH_S):
            self._server.cancel_all_calls()
            self._stopped.wait()
        self._thread.join()
        self._server.destroy()

    def _begin_thread(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="exchange", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Every event carries what to do about it."""
        while True:
            event = self._queue.poll()
            if event.completion_type == cygrpc.CompletionType.queue_shutdown:
                return
            event.tag(event)

    def _end(self, event: Any) -> None:
        """The last call is over."""
        self._stopped.set()
        self._queue.shutdown()

    def _request_call(self) -> None:
        self._server.request_call(self._queue, self._queue, self._begin)

    def _begin(self, event: Any) -> None:
        """A client calls."""
        if not event.success:
            return  # we are shutting down
        rpc = event.call
        if event.call_details.method != self._path:
            _close(rpc, cygrpc.StatusCode.unimplemented, "only Exchange is implemented")
        elif self._open >= self._capacity:
            _close(rpc, cygrpc.StatusCode.resource_exhausted, f"{self._capacity} calls wait already")
        else:
            self._open += 1
            _Rpc(self, rpc).begin()
        self._request_call()


class _Rpc:
    """One call, from its first event to its last. Events come in the server's thread, a response from any."""

    def __init__(self, server: DirectServer, rpc: Any) -> None:
        self._server = server
        self._rpc = rpc
        self._call: Call | None = None
        self._is_over = False

    def begin(self) -> None:
        self._rpc.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)
        self._rpc.start_server_batch((cygrpc.ReceiveMessageOperation(_NO_FLAGS),), self._received)

    def respond(self, outcome: bytes | str | None) -> None:
        """Ends the call; only the first response counts, and none after the client has gone."""
        if self._is_over:
            return
        self._is_over = True
        if isinstance(outcome, str):
            _close(self._rpc, cygrpc.StatusCode.invalid_argument, outcome)
        else:
            self._rpc.start_server_batch(
                (
                    cygrpc.SendInitialMetadataOperation((), _NO_FLAGS),
                    cygrpc.SendMessageOperation(outcome or b"", _NO_FLAGS),
                    cygrpc.SendStatusFromServerOperation((), cygrpc.StatusCode.ok, b"", _NO_FLAGS),
                ),
                _nothing_to_do,
            )

    def _received(self, event: Any) -> None:
        data = event.batch_operations[0].message()
        if event.success and data is not None and not self._is_over:
            peer = self._rpc.peer()
            self._call = self._server._accept(
                peer.decode() if isinstance(peer, bytes) else peer, data, self.respond
            )

    def _closed(self, event: Any) -> None:
        """The call is over for the client: our response has left, or it hung up."""
        self._server._open -= 1
        if not self._is_over:
            self._is_over = True
            if self._call is not None:
                self._server._on_hang_up(self._call)


def _close(rpc: Any, code: Any, text: str) -> None:
    """Ends a call with a status instead of a message."""
    rpc.start_server_batch(
        (
            cygrpc.SendInitialMetadataOperation((), _NO_FLAGS),
            cygrpc.SendStatusFromServerOperation((), code, text.encode(), _NO_FLAGS),
        ),
        _nothing_to_do,
    )


def _nothing_to_do(event: Any) -> None:
    pass
