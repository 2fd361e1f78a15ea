"""Simulators that speak the wire by hand, each in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import grpc

from unity_bridge.side_channels import SideChannelRecord, pack_records
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
]
PATIENCE_S = 20.0


class Refused(Exception):
    """The trainer ended the conversation; the text is the status of the call."""


class Stopped(Exception):
    """The trainer said that all is over (status 400)."""


class WireSimulator:
    """One conversation: what is sent is a message each, what comes back is parsed."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
        self._exchange = self._channel.unary_unary(EXCHANGE)
        self._described: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def handshake(self) -> Self:
        """The handshake, until the first reset."""
        message = UnityMessageProto()
        introduction = message.unity_output.rl_initialization_output
        introduction.communication_version = introduction.package_version = "1.5.0"
        self.say(message)
        self.say(UnityMessageProto())
        return self

    def step(
        self,
        agents: Mapping[str, Iterable[int]],
        *,
        done: Iterable[int] = (),
        records: Iterable[SideChannelRecord] = (),
        continuous: int = 1,
        size: int = 1,
    ) -> UnityMessageProto:
        """Sends one tick: agents that ask for an action, by behavior id; those in ``done`` ended an episode before.

        continuous, size: how many actions they have, and how many numbers they see.
        """
        message, done = UnityMessageProto(), set(done)
        output = message.unity_output
        for behavior, ids in agents.items():
            if behavior not in self._described:
                self._described.add(behavior)
                parameters = output.rl_initialization_output.brain_parameters.add(brain_name=behavior)
                parameters.action_spec.num_continuous_actions = continuous
            infos = output.rl_output.agentInfos[behavior].value
            for ended in (True, False):
                for agent in ids:
                    if not ended or agent in done:
                        info = infos.add(id=agent, done=ended, reward=1.0)
                        info.observations.add(shape=[size], name="eye").float_data.data.extend([1.0] * size)
        output.rl_output.side_channel = pack_records(records)
        return self.say(message)

    def leave(self) -> None:
        """Goodbye, by status 400."""
        self._exchange(_with_status(UnityMessageProto(), 400), timeout=PATIENCE_S)

    def say(self, message: UnityMessageProto) -> UnityMessageProto:
        try:
            data = self._exchange(_with_status(message, 200), timeout=PATIENCE_S, wait_for_ready=True)
        except grpc.RpcError as error:
            raise Refused(error.details()) from None  # type: ignore[attr-defined]
        reply = UnityMessageProto.FromString(data)
        if reply.header.status == 400:
            raise Stopped
        return reply


class WireSimulatorThreads:
    """Runs functions of a visitor beside the trainer, which runs in the test's own thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._threads: list[threading.Thread] = []
        self.found: list[Any] = []
        """What went wrong in them."""

    def send(self, act: Callable[[WireSimulator], None]) -> None:
        """Begins one in a thread of its own."""

        def live() -> None:
            try:
                with WireSimulator(self._port) as visitor:
                    act(visitor)
            except Stopped:
                pass
            except BaseException as error:
                self.found.append(error)

        thread = threading.Thread(target=live, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Waits for all of them, and raises what went wrong in the first."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if self.found:
            raise self.found[0]


def _with_status(message: UnityMessageProto, status: int) -> bytes:
    message.header.status = status
    return message.SerializeToString()
