#!/usr/bin/env python3
"""One agent sees a number of -1 to 1 and earns 1 for naming its sign. Every episode is one decision long."""

import argparse
import random

import grpc

from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BEHAVIOR = "Sign"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mlagents-port", type=int, default=5004)
    port = parser.parse_known_args()[0].mlagents_port
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    grpc.channel_ready_future(channel).result(timeout=10)
    exchange = channel.unary_unary(
        "/communicator_objects.UnityToExternalProto/Exchange",
        request_serializer=UnityMessageProto.SerializeToString,
        response_deserializer=UnityMessageProto.FromString,
    )

    introduction = new_message()  # call 1: who we are
    ours = introduction.unity_output.rl_initialization_output
    ours.communication_version = "1.5.0"
    ours.package_version = "3.0.1"
    ours.capabilities.baseRLCapabilities = True  # what every simulator can do
    reply = exchange(introduction)
    random.seed(reply.unity_input.rl_initialization_input.seed)
    reply = exchange(new_message())  # call 2: an empty header; the reply says RESET

    number, reward, first = random.uniform(-1, 1), 0.0, True
    while reply.header.status == 200:  # anything else: the trainer wants us to stop
        message = new_message()
        if first:
            describe(message)
        else:
            add_row(message, number, reward=reward, done=True)  # the episode that just ended ...
            number = random.uniform(-1, 1)
        add_row(message, number)  # ... and the first question of the next
        reply = exchange(message)
        if BEHAVIOR in reply.unity_input.rl_input.agent_actions:
            choice = reply.unity_input.rl_input.agent_actions[BEHAVIOR].value[0].discrete_actions[0]
            reward = 1.0 if choice == (number > 0) else 0.0
        first = False


def new_message() -> UnityMessageProto:
    message = UnityMessageProto()
    message.header.status = 200
    return message


def describe(message: UnityMessageProto) -> None:
    """Once, in the first message that has an agent: what the behavior can do. What it sees, its rows show."""
    brain = message.unity_output.rl_initialization_output.brain_parameters.add()
    brain.brain_name = BEHAVIOR
    brain.action_spec.num_discrete_actions = 1
    brain.action_spec.discrete_branch_sizes.append(2)


def add_row(message: UnityMessageProto, number: float, *, reward: float = 0.0, done: bool = False) -> None:
    row = message.unity_output.rl_output.agentInfos[BEHAVIOR].value.add(id=0, reward=reward, done=done)
    sensor = row.observations.add(name="number", shape=[1])
    sensor.float_data.data.append(number)


if __name__ == "__main__":
    main()
