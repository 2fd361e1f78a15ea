"""A trainer that sends prepared replies, and remembers every message that it received."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import grpc
import numpy as np
import pytest

from unity_bridge.steps import ActionBatch
from unity_bridge.wire.agent_action_pb2 import AgentActionProto
from unity_bridge.wire.command_pb2 import CommandProto
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

Exchange = Callable[[bytes, grpc.ServicerContext], bytes]


class ScriptedTrainer:
    """Answers message i with reply i of its script, and everything after that with status 400."""

    def __init__(self) -> None:
        self.received: list[UnityMessageProto] = []
        self.raw: list[bytes] = []
        self.script: list[UnityMessageProto] = []

    def exchange(self, data: bytes, context: object = None) -> bytes:
        answered = len(self.received)
        self.raw.append(data)
        self.received.append(UnityMessageProto.FromString(data))
        reply = self.script[answered] if answered < len(self.script) else self.stop()
        return reply.SerializeToString()

    def handshake(self, seed: int = 7) -> ScriptedTrainer:
        self.script += [self.initialization(seed), self.command(CommandProto.RESET)]
        return self

    def then(self, *replies: UnityMessageProto) -> ScriptedTrainer:
        self.script += replies
        return self

    @staticmethod
    def initialization(seed: int) -> UnityMessageProto:
        message = UnityMessageProto()
        message.header.status = 200
        message.unity_input.rl_initialization_input.seed = seed
        message.unity_input.rl_initialization_input.communication_version = "1.5.0"
        message.unity_input.rl_initialization_input.capabilities.SetInParent()
        return message

    @staticmethod
    def command(command: int) -> UnityMessageProto:
        message = UnityMessageProto()
        message.header.status = 200
        message.unity_input.rl_input.command = command
        return message

    @staticmethod
    def act(
        behavior: str,
        *,
        continuous: Sequence[Sequence[float]] = (),
        discrete: Sequence[Sequence[int]] = (),
    ) -> UnityMessageProto:
        message = ScriptedTrainer.command(CommandProto.STEP)
        actions = message.unity_input.rl_input.agent_actions[behavior]
        for row in range(max(len(continuous), len(discrete))):
            actions.value.append(
                AgentActionProto(
                    continuous_actions=continuous[row] if continuous else (),
                    discrete_actions=discrete[row] if discrete else (),
                )
            )
        return message

    @staticmethod
    def stop() -> UnityMessageProto:
        message = UnityMessageProto()
        message.header.status = 400
        return message


@pytest.fixture
def trainer() -> ScriptedTrainer:
    return ScriptedTrainer()


@contextmanager
def _serve(exchange: Exchange, port: int = 0) -> Iterator[int]:
    server = grpc.server(
        ThreadPoolExecutor(4),
        options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
    )
    handlers = {"Exchange": grpc.unary_unary_rpc_method_handler(exchange)}
    service = "communicator_objects.UnityToExternalProto"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait()


@pytest.fixture
def serve() -> Callable[..., AbstractContextManager[int]]:
    """Serves an exchange function on a real channel; yields the port."""
    return _serve


@pytest.fixture
def act() -> Callable[..., dict[str, ActionBatch]]:
    """Actions for one behavior from plain lists, a row for each agent."""

    def build(behavior: str, *, continuous=None, discrete=None) -> dict[str, ActionBatch]:
        count = len(continuous if continuous is not None else discrete)
        numbers = np.zeros((count, 0)) if continuous is None else np.array(continuous)
        choices = np.zeros((count, 0)) if discrete is None else np.array(discrete)
        return {behavior: ActionBatch(numbers.astype(np.float32), choices.astype(np.int32))}

    return build
