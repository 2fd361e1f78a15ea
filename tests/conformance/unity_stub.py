"""Plays Unity's side of the protocol with the real ML-Agents' own messages, and is as strict as the C# code.

    unity_stub.py PACKAGE_VERSION [--leave-after N] [--truth FILE.npz] … --mlagents-port PORT

It behaves like the C# package of that version: how it shakes hands, declares behaviors, lays out and compresses
pictures, masks, groups agents, and what of a reply would make it throw. It ends with code 0 only if the trainer output
goodbye by status 400, or after N messages of its own; the last line that it prints is what it saw of the trainer, as
JSON. ``--truth`` keeps what its agents saw, pictures as (C, H, W) in [0, 1]. Runs in the real ML-Agents' environment.
"""

import json
import re
import struct
import sys
from uuid import UUID

import grpc
import numpy as np
from mlagents_envs.communicator_objects.command_pb2 import RESET, STEP
from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto
from mlagents_envs.communicator_objects.unity_to_external_pb2_grpc import UnityToExternalProtoStub
from stub_world import behaviors_of, require

FOUR_MIB = 4 * 2**20
STATS = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
OWN = UUID("0f5c1d3a-9a53-4a0b-8f55-2e0b7f3c9d11")


class Unity:
    """The conversation."""

    def __init__(self, package, port):
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._exchange = UnityToExternalProtoStub(
            grpc.insecure_channel(f"localhost:{port}", options)
        ).Exchange
        self._package = package
        self.behaviors = behaviors_of(package)
        self._rng = np.random.RandomState(1)
        self._messages = 0
        self._restarted = True
        self.truth = {}
        self.report = {"resets": 0, "steps": 0, "channels": {}}

    def play(self, leave_after):
        self._shake_hands()
        while self._messages != leave_after:
            reply = self._say(self._step())
            if reply is None:
                return
            self._heed(reply)
        self._exchange(self._message(status=400))

    def _shake_hands(self):
        message = self._message()
        introduction = message.unity_output.rl_initialization_output
        introduction.name = "AcademySingleton"
        introduction.package_version = self._package
        old = self._package.startswith("1.0")
        introduction.communication_version = "1.0.0" if old else "1.5.0"
        if not old:
            for field in introduction.capabilities.DESCRIPTOR.fields:
                setattr(introduction.capabilities, field.name, True)
        reply = self._exchange(message, wait_for_ready=True, timeout=60)
        require(reply.header.status == 200, f"{reply.header}")
        require(reply.unity_input.HasField("rl_initialization_input"), "no rl_initialization_input")
        given = reply.unity_input.rl_initialization_input
        require(
            re.fullmatch(r"\d+\.\d+(\.\d+){0,2}", given.communication_version), given.communication_version
        )
        require(given.HasField("capabilities"), "no capabilities")
        require(given.num_areas >= 1, f"{given.num_areas} areas")
        if old:
            require([*map(int, given.package_version.split("."))] <= [0, 25, 999], given.package_version)
        self.report.update(seed=given.seed, areas=given.num_areas, package_version=given.package_version)
        reply = self._say(self._message())
        require(reply is not None, "status 400 in the handshake")
        require(reply.unity_input.rl_input.command == RESET, "the second reply must be a reset")
        self._listen(reply.unity_input.rl_input.side_channel)
        self.report["resets"] = 1

    def _step(self):
        message = self._message()
        output = message.unity_output
        output.rl_output.side_channel = statistic("Stub/Messages", self._messages) + record(
            OWN, b"\x00\xffopaque"
        )
        for behavior in self.behaviors:
            infos = output.rl_output.agentInfos[behavior.name]  # there even if nobody has anything to say
            if self._messages < behavior.since:
                continue
            seen = behavior.speak(self._rng, infos, self._restarted or self._messages == behavior.since)
            if infos.value and not behavior.described:
                behavior.describe(output.rl_initialization_output.brain_parameters.add())
                behavior.described = True
            for number, values in enumerate(seen):
                self.truth[f"{self._messages:03d}/{behavior.name}/{number}"] = values
            self.truth[f"{self._messages:03d}/{behavior.name}/done"] = np.array([i.done for i in infos.value])
        self._restarted = False
        self._messages += 1
        return message

    def _heed(self, reply):
        rl_input = reply.unity_input.rl_input
        self._listen(rl_input.side_channel)
        if rl_input.command == RESET:
            require(not rl_input.agent_actions, "actions beside a reset")
            self._restarted = True
            self.report["resets"] += 1
            return
        require(rl_input.command == STEP, f"command {rl_input.command}")
        asked = {behavior.name: behavior for behavior in self.behaviors if behavior.asked}
        require(set(rl_input.agent_actions) <= set(asked), f"keys {sorted(rl_input.agent_actions)}")
        for name, behavior in asked.items():
            behavior.obey(rl_input.agent_actions[name].value)
        self.report["steps"] += 1

    def _listen(self, data):
        """Notes the messages on each channel; throws where a record is cut."""
        place = 0
        while place < len(data):
            channel = str(UUID(bytes_le=data[place : place + 16]))
            (length,) = struct.unpack_from("<i", data, place + 16)
            body = data[place + 20 : place + 20 + length]
            require(len(body) == length, f"channel {channel}: {len(body)} of {length} bytes")
            self.report["channels"].setdefault(channel, []).append(body.hex())
            place += 20 + length

    def _say(self, message):
        """The trainer's reply; None if it says goodbye."""
        reply = self._exchange(message)
        require(reply.HasField("header"), "a reply without header")
        require(reply.ByteSize() < FOUR_MIB, f"a reply of {reply.ByteSize()} bytes")
        if reply.header.status == 400:
            return None
        require(reply.header.status == 200, f"status {reply.header.status}")
        require(reply.unity_input.HasField("rl_input"), "a reply without rl_input")
        return reply

    @staticmethod
    def _message(status=200):
        message = UnityMessageProto()
        message.header.status = status
        return message


def record(channel, body):
    return channel.bytes_le + struct.pack("<i", len(body)) + body


def statistic(name, value):
    text = name.encode("ascii")
    return record(STATS, struct.pack("<i", len(text)) + text + struct.pack("<fi", value, 0))


def main(arguments):
    def option(name, default=None):
        return arguments[arguments.index(name) + 1] if name in arguments else default

    unity = Unity(arguments[0], int(option("--mlagents-port", 5004)))
    unity.play(int(option("--leave-after", -1)))
    if option("--truth"):
        np.savez(option("--truth"), **unity.truth)
    forbidden = sum(behavior.forbidden for behavior in unity.behaviors)
    print(json.dumps({**unity.report, "forbidden": forbidden}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
