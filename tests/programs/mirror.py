"""A simulator that shows what it is told: its agents see the last command and their own last actions.

Two agents, two continuous actions and two branches of three choices. The first sensor is [command, resets, step,
seed], the second the agent's actions. What comes on side channels goes back as it came, with the next message
and a statistic, except on those channels where no simulator may speak. It prints the arguments that it was started
with, without its port.
"""

from __future__ import annotations

import sys

import grpc

from unity_bridge.side_channels import (
    ENGINE_CONFIGURATION,
    ENVIRONMENT_PARAMETERS,
    TRAINING_ANALYTICS,
    Aggregation,
    StatMessage,
    pack_records,
    stat_records,
    unpack_records,
)
from unity_bridge.wire.command_pb2 import RESET
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
BEHAVIOR = "Mirror?team=0"
AGENTS = (7, 9)
ONE_WAY = (ENGINE_CONFIGURATION, ENVIRONMENT_PARAMETERS, TRAINING_ANALYTICS)
NOTHING = (0.0,) * 4


class Mirror:
    def __init__(self, port: str) -> None:
        self._exchange = grpc.insecure_channel(f"localhost:{port}", options=OPTIONS).unary_unary(EXCHANGE)
        self._resets = self._steps = 0

    def play(self) -> None:
        message = UnityMessageProto()
        introduction = message.unity_output.rl_initialization_output
        introduction.communication_version, introduction.package_version = "1.5.0", "3.0.0"
        seed = self._say(message).rl_initialization_input.seed
        received = self._say(UnityMessageProto()).rl_input
        while True:
            message = self._next(received, seed)
            if not self._steps:
                _describe(message)
            self._steps += 1
            received = self._say(message).rl_input

    def _next(self, received, seed: int) -> UnityMessageProto:
        self._resets += received.command == RESET
        message = UnityMessageProto()
        records = [each for each in unpack_records(received.side_channel) if each.channel not in ONE_WAY]
        records += stat_records([StatMessage("steps", self._steps, Aggregation.AVERAGE)])
        message.unity_output.rl_output.side_channel = pack_records(records)
        given = received.agent_actions[BEHAVIOR].value
        for index, agent in enumerate(AGENTS):
            info = message.unity_output.rl_output.agentInfos[BEHAVIOR].value.add(id=agent, reward=self._steps)
            actions = (*given[index].continuous_actions, *given[index].discrete_actions) if given else NOTHING
            _see(info, "command", (received.command, self._resets, self._steps, seed))
            _see(info, "deeds", actions)
        return message

    def _say(self, message: UnityMessageProto):
        message.header.status = 200
        try:
            data = self._exchange(message.SerializeToString(), wait_for_ready=True)
        except grpc.RpcError:
            sys.exit(3)
        reply = UnityMessageProto.FromString(data)
        if reply.header.status != 200:
            sys.exit(0)
        return reply.unity_input


def _describe(message: UnityMessageProto) -> None:
    parameters = message.unity_output.rl_initialization_output.brain_parameters.add(brain_name=BEHAVIOR)
    parameters.action_spec.num_continuous_actions = 2
    parameters.action_spec.num_discrete_actions = 2
    parameters.action_spec.discrete_branch_sizes.extend([3, 3])


def _see(info, name: str, values) -> None:
    info.observations.add(name=name, shape=[len(values)], dimension_properties=[1]).float_data.data.extend(
        values
    )


if __name__ == "__main__":
    place = sys.argv.index("--mlagents-port")
    print(*sys.argv[1:place], *sys.argv[place + 2 :], flush=True)
    Mirror(sys.argv[place + 1]).play()
