"""A unary gRPC server on grpcio's public interface: one parked thread for each call that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc

from unity_bridge.transport.inbox import Inbox, ReadingClock
from unity_bridge.transport.limits import (
    MOST_SILENT_CALLS,
    SILENT_CALL_S,
    TOO_LARGE,
    MessageTurns,
    Turn,
    WaitingCalls,
    most_connections,
)
from unity_bridge.transport.service import PING_METHOD, PING_SERVICE, Service

_FLUSH_S = 0.5


class ThreadedServer:
    """A server for any grpcio. A call changes threads five times on its way, so DirectServer is preferred."""

    def __init__(self, service: Service, inbox: Inbox) -> None:
        """Listens; any inbox will do. Raises RuntimeError if the address cannot be bound."""
        self._inbox = inbox
        self._service = service
        self._silent = _SilentCalls(inbox.clock)
        self._turns = MessageTurns(inbox.clock)
        self._waiting = WaitingCalls(service.capacity)
        most = most_connections(service.capacity) + service.capacity + MOST_SILENT_CALLS + 1
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="exchange")
        # As a stream, because a unary call would say nothing of itself before its message is there.
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(self._exchange)
        ping: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(self._ping)
        methods = {service.name: {service.method: handler}, PING_SERVICE: {PING_METHOD: ping}}
        self._server = grpc.server(
            self._threads,
            handlers=[grpc.method_handlers_generic_handler(*each) for each in methods.items()],
            options=service.options,
            maximum_concurrent_rpcs=most,
        )
        security = service.security
        self.port: int = (
            self._server.add_insecure_port(service.address)
            if security is None
            else self._server.add_secure_port(service.address, security.credentials)
        )
        self._server.start()
        inbox.watch(self._silent.end_old)
        inbox.watch(self._turns.pass_on)
        if security is not None:
            inbox.watch(security.watch)

    def stop(self) -> None:
        """Sends the ready answers, drops every other call and frees the port."""
        self._inbox.unwatch(self._silent.end_old)
        self._inbox.unwatch(self._turns.pass_on)
        if self._service.security is not None:
            self._inbox.unwatch(self._service.security.watch)
            self._service.security.close()
        self._server.stop(_FLUSH_S).wait()
        self._threads.shutdown()

    def _exchange(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        self._require_admission(context)
        self._silent.enter(context)
        begins = threading.Event()
        turn = Turn(context.peer(), begins.set, lambda why: context.cancel())
        context.add_callback(begins.set)  # a call that is over waits no longer
        self._turns.request(turn)
        begins.wait()
        received = data = None
        try:
            received = next(requests, None)
            data = None if received is None else self._turns.inflated(turn, received)
        except Exception:  # it was given up, or its client is gone
            pass
        finally:
            self._silent.leave(context)
        if data is not None and self._turns.note_message(turn, len(data)):
            self._inbox.when_handled(lambda: self._turns.end(turn))
        else:
            self._turns.end(turn)
        if data is None:
            self._service.on_broken(context.peer())
            if received is not None:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_LARGE)
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "it brought no message in time")
        peer = context.peer()
        if not self._waiting.enter(peer):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls wait already")
        try:
            return self._wait_for_answer(data, context)
        finally:
            self._waiting.leave(peer)

    def _ping(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        self._require_admission(context)
        if self._service.security is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "only Exchange is implemented")
        return repr(time.time()).encode()

    def _require_admission(self, context: grpc.ServicerContext) -> None:
        """Ends a call that the port's security refuses."""
        security = self._service.security
        if security is None:
            return
        if refused := security.refusal(context.peer(), context.invocation_metadata()):
            context.set_trailing_metadata(refused.metadata)
            context.abort(refused.code, refused.why)

    def _wait_for_answer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        # A queue, since an answer and a hang-up may race: the first wins, the other is never read.
        outcome: SimpleQueue[bytes | str | None] = SimpleQueue()
        accepted: list[Callable[[], None]] = []
        returned = False

        def ended() -> None:
            if not returned and accepted:
                outcome.put(None)
                accepted[0]()

        if not context.add_callback(ended):
            return b""  # gone already
        metadata = context.invocation_metadata() or ()
        accepted.append(self._service.accept(context.peer(), data, outcome.put, metadata))
        answer = outcome.get()
        returned = True
        if isinstance(answer, str):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, answer)
        return answer or b""


class _SilentCalls:
    """Calls that have not brought their message yet, and when they were begun, the oldest first."""

    def __init__(self, clock: ReadingClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[grpc.ServicerContext, float] = {}

    def enter(self, context: grpc.ServicerContext) -> None:
        """Adds a call; when there are too many, the oldest is ended."""
        with self._lock:
            if len(self._begun) >= MOST_SILENT_CALLS:
                self._end(next(iter(self._begun)))
            self._begun[context] = self._clock.now()

    def leave(self, context: grpc.ServicerContext) -> None:
        """Removes a call that has brought its message, or never will."""
        with self._lock:
            self._begun.pop(context, None)

    def end_old(self, now: float) -> None:
        """Ends calls that were begun too long before ``now``."""
        with self._lock:
            for context, begun in list(self._begun.items()):
                if now < begun + SILENT_CALL_S:
                    return
                self._end(context)

    def _end(self, context: grpc.ServicerContext) -> None:
        del self._begun[context]
        context.cancel()
