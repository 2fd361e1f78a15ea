"""Messages of a simulator, and simulators that send them over a real channel."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from processes import free_port as find_free_port

from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge, BridgeSettings, Departure, Tick
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
BEHAVIOR = "Ball?team=0"
REPOSITORY = Path(__file__).parents[2]
LONG_S = 60.0


class Messages:
    """Builds messages of a simulator with one behavior: a vector sensor and two continuous actions."""

    @staticmethod
    def introduction(version: str = "1.5.0", package: str = "3.0.0") -> UnityMessageProto:
        message = UnityMessageProto()
        message.header.status = 200
        introduction = message.unity_output.rl_initialization_output
        introduction.name = "AcademySingleton"
        introduction.communication_version = version
        introduction.package_version = package
        return message

    @staticmethod
    def confirmation() -> UnityMessageProto:
        message = UnityMessageProto()
        message.header.status = 200
        return message

    @staticmethod
    def goodbye() -> UnityMessageProto:
        message = UnityMessageProto()
        message.header.status = 400
        return message

    @staticmethod
    def describe(
        message: UnityMessageProto,
        *,
        behavior: str = BEHAVIOR,
        continuous: int = 2,
        branches: Sequence[int] = (),
    ) -> UnityMessageProto:
        """Adds the description of a behavior."""
        parameters = message.unity_output.rl_initialization_output.brain_parameters.add()
        parameters.brain_name = behavior
        parameters.action_spec.num_continuous_actions = continuous
        parameters.action_spec.num_discrete_actions = len(branches)
        parameters.action_spec.discrete_branch_sizes.extend(branches)
        return message

    @staticmethod
    def step(
        observations: Sequence[Sequence[float]] = ((1.0, 2.0, 3.0),),
        *,
        behavior: str = BEHAVIOR,
        done: bool = False,
    ) -> UnityMessageProto:
        """One agent per observation, with ids from 0."""
        message = UnityMessageProto()
        message.header.status = 200
        infos = message.unity_output.rl_output.agentInfos[behavior]
        for agent, values in enumerate(observations):
            info = AgentInfoProto(id=agent, done=done)
            info.observations.add(shape=[len(values)], name="state").float_data.data.extend(values)
            infos.value.append(info)
        return message

    @classmethod
    def first_step(cls, *arguments: Any, **keywords: Any) -> UnityMessageProto:
        """A step of the default behavior that also describes it."""
        return cls.describe(cls.step(*arguments, **keywords))


class FakeSimulator:
    """A client with a connection of its own."""

    def __init__(self, port: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        self.exchange_bytes: Callable[..., bytes] = self._channel.unary_unary(EXCHANGE)
        self._thread = ThreadPoolExecutor(1)

    def exchange(self, message: UnityMessageProto) -> UnityMessageProto:
        """Sends a message and waits for the answer."""
        data = self.exchange_bytes(message.SerializeToString(), wait_for_ready=True, timeout=60)
        return UnityMessageProto.FromString(data)

    def later(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Does something in the background, in the order of these calls, while the test plays the trainer."""
        return self._thread.submit(function, *arguments)

    def start(self, first: UnityMessageProto) -> UnityMessageProto:
        """The handshake and the first step; returns the answer to the latter."""
        self.exchange(Messages.introduction())
        self.exchange(Messages.confirmation())
        return self.exchange(first)

    @staticmethod
    def refusal(future: Future[Any]) -> str:
        """Returns the text with which a call was refused."""
        error = future.exception(LONG_S)
        assert isinstance(error, grpc.RpcError)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        return str(error.details())

    def raw_call(self, data: bytes, **options: Any) -> Any:
        """A call that the test may cancel."""
        return self._channel.unary_unary(EXCHANGE).future(data, **options)

    def close(self) -> None:
        self._channel.close()
        self._thread.shutdown()


class DrivenBridge(Bridge):
    """A bridge with the test as its trainer."""

    def next_events(self, count: int = 1) -> list[Any]:
        """Returns at least that many events, however many receives they take."""
        events: list[Any] = []
        while len(events) < count:
            events += self.receive(LONG_S)
        return events

    def next_tick(self) -> Tick:
        (event,) = self.next_events()
        assert isinstance(event, Tick), event
        return event

    def next_departure(self) -> Departure:
        (event,) = self.next_events()
        assert isinstance(event, Departure), event
        return event

    def act(self, tick: Tick, value: float = 0.0) -> None:
        """Answers a tick with the same number everywhere."""
        answers = {}
        for behavior, batch in tick.steps.items():
            waiting = len(batch) - batch.num_terminal
            answers[behavior] = ActionBatch(
                np.full((waiting, 2), value, np.float32), np.zeros((waiting, 0), np.int32)
            )
        self.reply(tick.simulator, answers)

    def begin(self, simulator: FakeSimulator) -> Future[Any]:
        """Answers the first step of a simulator, as soon as that comes. Returns the answer."""
        answer = simulator.later(simulator.start, Messages.first_step())
        self.act(self.next_tick())
        return answer

    def answered(self, future: Future[Any]) -> Any:
        """Serves until a call that is no event is answered; returns the answer."""
        while not future.done():
            assert self.receive(0.02) == []
        return future.result()


@pytest.fixture
def make_bridge(processes: None, tmp_path: Path) -> Iterator[Callable[..., DrivenBridge]]:
    """Makes bridges with long timeouts."""
    bridges: list[DrivenBridge] = []

    def make(**settings: Any) -> DrivenBridge:
        defaults = {
            "seed": 100,
            "run_logs": tmp_path / "run_logs",
            "timeout_wait_s": LONG_S,
            "shutdown_grace_s": 0.2,
        }
        bridges.append(DrivenBridge(BridgeSettings(**{**defaults, **settings})))
        return bridges[-1]

    yield make
    for bridge in bridges:
        bridge.close()


@pytest.fixture
def messages() -> type[Messages]:
    return Messages


@pytest.fixture
def connect() -> Iterator[Callable[[int], FakeSimulator]]:
    """Makes fake simulators that attach to a port."""
    clients: list[FakeSimulator] = []

    def make(port: int) -> FakeSimulator:
        clients.append(FakeSimulator(port))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


_SIMULATOR_SOURCE = """
import os, signal, sys, threading
import grpc
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

def say(status=200, **output):
    message = UnityMessageProto()
    message.header.status = status
    if output.get("introduction"):
        message.unity_output.rl_initialization_output.communication_version = "1.5.0"
    if output.get("first"):
        parameters = message.unity_output.rl_initialization_output.brain_parameters.add()
        parameters.brain_name = "Ball?team=0"
        parameters.action_spec.num_continuous_actions = 2
    if output.get("step"):
        info = message.unity_output.rl_output.agentInfos["Ball?team=0"].value.add()
        info.observations.add(shape=[1]).float_data.data.append(os.getpid())
    try:
        reply = UnityMessageProto.FromString(exchange(message.SerializeToString(), wait_for_ready=True))
    except grpc.RpcError:
        sys.exit(0)
    if reply.header.status == 400:
        sys.exit(0)

port = sys.argv[sys.argv.index("--mlagents-port") + 1]
def connect():
    channel = grpc.insecure_channel("localhost:" + port, options=[("grpc.use_local_subchannel_pool", 1)])
    return channel.unary_unary("/communicator_objects.UnityToExternalProto/Exchange")

exchange = connect()
for act in sys.argv[sys.argv.index("--plan") + 1:]:
    if act == "introduce": say(introduction=True)
    if act == "confirm": say()
    if act == "first": say(first=True, step=True)
    if act == "step": say(step=True)
    if act == "goodbye": say(400)
    if act == "reopen": exchange = connect()
    if act == "print": print("the ball is lost", flush=True)
    if act == "wait": threading.Event().wait()
    if act == "exit": os._exit(3)
    if act == "die": os.kill(os.getpid(), signal.SIGKILL)
    while act == "forever": say(step=True)
"""


@pytest.fixture
def make_program(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes an executable Python file."""

    def make(name: str, source: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\n{source}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


@pytest.fixture
def simulator_program(
    processes: None, make_program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Command]:
    """Commands for a process that follows a plan: introduce, confirm, first, step, forever, goodbye, exit, …"""
    search = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", search)
    path = make_program("simulator.py", _SIMULATOR_SOURCE)

    def command(plan: str) -> Command:
        return Command(env="test", executable=(str(path),), arguments=("--plan", *plan.split()))

    return command


@pytest.fixture
def idle_program(make_program: Callable[[str, str], Path]) -> Command:
    """A process that runs and never connects: the test may speak in its place."""
    path = make_program("idle.py", "import threading\nthreading.Event().wait()\n")
    return Command(env="idle", executable=(str(path),))


@pytest.fixture
def free_port() -> int:
    """A port that was free a moment ago."""
    return find_free_port()


@pytest.fixture
def free_ports() -> Callable[[int], int]:
    """Finds the first of several ports in a row that were free a moment ago."""

    def find(count: int) -> int:
        while True:
            first = find_free_port()
            with suppress(OSError, OverflowError), ExitStack() as held:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
                return first

    return find
