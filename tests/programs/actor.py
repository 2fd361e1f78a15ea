"""A simulator that says what it is told to say, right or wrong: its arguments are its acts, one after another.

introduce[=VERSION]  confirm     the handshake
step  forever                    four walkers, described with the first step
goodbye  garbage                 status 400; bytes that are no message
print=TEXT  exit=CODE  silence   what its process does
… and each name in MISTAKES      a step with something wrong in it
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping

import grpc

from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
WALKERS = 4
EPISODE = 5


class Actor:
    def __init__(self, port: str, behavior: str) -> None:
        self._behavior = behavior
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
        self._exchange = self._channel.unary_unary(EXCHANGE)
        self._steps = 0

    def play(self, act: str) -> None:
        name, _, value = act.partition("=")
        if name in MISTAKES:
            message = self._next()
            MISTAKES[name](message, self._behavior)
            self._say(message)
        elif value:
            getattr(self, f"_{name}")(value)
        else:
            getattr(self, f"_{name}")()

    def _introduce(self, version: str = "1.5.0") -> None:
        message = UnityMessageProto()
        introduction = message.unity_output.rl_initialization_output
        introduction.communication_version = introduction.package_version = version
        self._say(message)

    def _confirm(self) -> None:
        self._say(UnityMessageProto())

    def _step(self) -> None:
        self._say(self._next())

    def _next(self) -> UnityMessageProto:
        message = UnityMessageProto()
        if self._steps == 0:
            describe(message, self._behavior)
        ends = self._steps > 0 and self._steps % EPISODE == 0
        infos = message.unity_output.rl_output.agentInfos[self._behavior].value
        for done in (True, False) if ends else (False,):
            for walker in range(WALKERS):
                info = infos.add(id=walker, done=done, reward=0.0 if ends and not done else 1.0)
                info.observations.add(shape=[3], name="eyes").float_data.data.extend(
                    [walker, self._steps % EPISODE, 1.0]
                )
        self._steps += 1
        return message

    def _forever(self) -> None:
        while True:
            self._step()

    def _goodbye(self) -> None:
        message = UnityMessageProto()
        message.header.status = 400
        self._exchange(message.SerializeToString())

    def _garbage(self) -> None:
        self._send(b"\xff\xff no message \x01")

    def _print(self, text: str) -> None:
        print(text.replace("_", " "), flush=True)

    def _exit(self, code: str) -> None:
        os._exit(int(code))

    def _silence(self) -> None:
        threading.Event().wait()

    def _say(self, message: UnityMessageProto) -> None:
        message.header.status = 200
        self._send(message.SerializeToString())

    def _send(self, data: bytes) -> None:
        try:
            reply = self._exchange(data, wait_for_ready=True)
        except grpc.RpcError as error:
            print(f"refused: {error.details()}", flush=True)
            sys.exit(4)
        if UnityMessageProto.FromString(reply).header.status == 400:
            sys.exit(0)


def describe(message: UnityMessageProto, behavior: str) -> None:
    parameters = message.unity_output.rl_initialization_output.brain_parameters.add()
    parameters.brain_name = behavior
    parameters.action_spec.num_continuous_actions = 2


def _first(message: UnityMessageProto, behavior: str):
    return message.unity_output.rl_output.agentInfos[behavior].value[0]


def _duplicate_ids(message: UnityMessageProto, behavior: str) -> None:
    for info in message.unity_output.rl_output.agentInfos[behavior].value:
        info.id = 7


def _nan_observation(message: UnityMessageProto, behavior: str) -> None:
    _first(message, behavior).observations[0].float_data.data[1] = float("nan")


def _infinite_observation(message: UnityMessageProto, behavior: str) -> None:
    _first(message, behavior).observations[0].float_data.data[1] = float("inf")


def _nan_reward(message: UnityMessageProto, behavior: str) -> None:
    _first(message, behavior).reward = float("nan")


def _infinite_reward(message: UnityMessageProto, behavior: str) -> None:
    _first(message, behavior).reward = float("-inf")


MISTAKES: Mapping[str, Callable[[UnityMessageProto, str], None]] = {
    "duplicate-ids": _duplicate_ids,
    "nan-observation": _nan_observation,
    "infinite-observation": _infinite_observation,
    "nan-reward": _nan_reward,
    "infinite-reward": _infinite_reward,
}


def main(arguments: list[str]) -> None:
    port = arguments[arguments.index("--mlagents-port") + 1]
    acts = arguments[arguments.index("--acts") + 1 :]
    behavior = "Walker?team=0"
    if acts and acts[0].startswith("behavior="):
        behavior = acts.pop(0).partition("=")[2]
    actor = Actor(port, behavior)
    for act in acts:
        actor.play(act)


if __name__ == "__main__":
    main(sys.argv[1:])
