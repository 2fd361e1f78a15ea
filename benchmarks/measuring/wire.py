"""The cost of the wire: a client in another process sends ready-made messages as fast as it gets answers."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from statistics import median

import grpc

from unity_bridge.server.bridge import Bridge, BridgeSettings, Departure
from unity_bridge.simulators.conversation import goodbye
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.transport.endpoint import METHOD, SERVICE

_PATIENCE_S = 60.0


def measure_ping_pong(message: bytes, reply: bytes, exchanges: int) -> float:
    """Median microseconds of an exchange with a gRPC server that answers at once with ready-made bytes."""
    with ThreadPoolExecutor(2) as threads:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
            lambda data, context: reply
        )
        server = grpc.server(
            threads, handlers=[grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        client = _Client(port, message, exchanges)
        taken_us = client.result()
        server.stop(None).wait()
    return taken_us


def measure_bridge(handshake: Sequence[bytes], message: bytes, exchanges: int) -> float:
    """The same with our bridge, which decodes every message and answers with zeros."""
    with Bridge(BridgeSettings(seed=1)) as bridge:
        client = _Client(bridge.listen(port=0), message, exchanges, before=handshake, after=[goodbye()])
        specs: dict[str, BehaviorSpec] = {}
        departed = False
        while not departed:
            for event in bridge.receive(_PATIENCE_S):
                if isinstance(event, Departure):
                    departed = True
                    continue
                specs.update(event.new_specs)
                bridge.reply(
                    event.simulator,
                    {
                        name: ActionBatch.zeros(len(batch) - batch.num_terminal, specs[name].action_spec)
                        for name, batch in event.steps.items()
                    },
                )
        return client.result()


class _Client:
    """The client's process."""

    def __init__(
        self,
        port: int,
        message: bytes,
        exchanges: int,
        *,
        before: Sequence[bytes] = (),
        after: Sequence[bytes] = (),
    ) -> None:
        """Sends the message so many times, with stopwatch; what comes before and after it, without."""
        spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
        self._pipe, theirs = spawn.Pipe(duplex=False)
        arguments = (port, tuple(before), message, exchanges, tuple(after), theirs)
        self._process = spawn.Process(target=_call_repeatedly, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def result(self) -> float:
        """Median microseconds of an exchange. Raises EOFError if the process died."""
        taken_us: float = self._pipe.recv()
        self._process.join()
        return taken_us


def _call_repeatedly(
    port: int,
    before: Sequence[bytes],
    message: bytes,
    exchanges: int,
    after: Sequence[bytes],
    result: Connection,
) -> None:
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        grpc.channel_ready_future(channel).result(timeout=_PATIENCE_S)
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        for unmeasured in before:
            call(unmeasured)
        taken = []
        for _ in range(exchanges):
            started = time.perf_counter_ns()
            call(message)
            taken.append(time.perf_counter_ns() - started)
        for unmeasured in after:
            call(unmeasured)
    result.send(median(taken) / 1e3)
