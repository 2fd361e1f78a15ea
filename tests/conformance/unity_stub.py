"""Plays Unity's side of the protocol with the real ML-Agents' own messages, and is as strict as the C# code.

    unity_stub.py PACKAGE_VERSION [--leave-after N] [--truth FILE.npz] … --mlagents-port PORT

It behaves like the C# package of that version: how it shakes hands, declares behaviors, lays out and compresses
pictures, masks, groups agents, and what of a reply would make it throw. It ends with code 0 only if the trainer said
goodbye by status 400, or after N messages of its own; the last line that it prints is what it saw of the trainer, as
JSON. ``--truth`` keeps what its agents saw, pictures as (C, H, W) in [0, 1]. Runs in the real ML-Agents' environment.
"""

import io
import json
import re
import struct
import sys
from uuid import UUID

import grpc
import numpy as np
from mlagents_envs.communicator_objects.command_pb2 import RESET, STEP
from mlagents_envs.communicator_objects.observation_pb2 import GOAL_SIGNAL, PNG
from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto
from mlagents_envs.communicator_objects.unity_to_external_pb2_grpc import UnityToExternalProtoStub
from PIL import Image

FOUR_MIB = 4 * 2**20
NONE, EQUIVARIANCE, VARIABLE = 1, 2, 4
STATS = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
OWN = UUID("0f5c1d3a-9a53-4a0b-8f55-2e0b7f3c9d11")


class Vector:
    def __init__(self, name, size, goal=False):
        self.name, self.shape, self.properties, self.goal = name, (size,), (NONE,), goal

    def see(self, rng, proto):
        values = rng.normal(size=self.shape).astype(np.float32)
        values[rng.rand(*self.shape) < 0.3] = 0.0
        proto.float_data.data.extend(values)
        return values


class Buffer:
    """Up to so many entities; the rest are rows of zeros."""

    goal = False

    def __init__(self, name, most, size):
        self.name, self.shape, self.properties = name, (most, size), (VARIABLE, NONE)

    def see(self, rng, proto):
        values = np.zeros(self.shape, np.float32)
        values[: rng.randint(self.shape[0] + 1)] = 1.0 + rng.rand(*self.shape)[0]
        proto.float_data.data.extend(values.ravel())
        return values


class Picture:
    """A camera or a grid: ``order`` is how the shape is declared, ``memory`` how floats lie."""

    goal = False

    def __init__(self, name, channels, height, width, *, order, memory, mapping=None):
        self.name, self._chw, self._memory, self._mapping = name, (channels, height, width), memory, mapping
        if order == "chw":
            self.shape, self.properties = self._chw, (NONE, EQUIVARIANCE, EQUIVARIANCE)
        else:
            self.shape, self.properties = (height, width, channels), (EQUIVARIANCE, EQUIVARIANCE, NONE)

    def see(self, rng, proto):
        pixels = rng.randint(256, size=self._chw).astype(np.uint8)
        truth = pixels.astype(np.float32) / np.float32(255)
        if self._mapping is None:
            proto.float_data.data.extend(
                (truth if self._memory == "chw" else truth.transpose(1, 2, 0)).ravel()
            )
        else:
            proto.compression_type = PNG
            proto.compressed_channel_mapping.extend(self._mapping)
            proto.compressed_data = self._compress(pixels)
        return truth

    def _compress(self, pixels):
        """RGB files back to back: the source channel for each place, or black where the mapping says −1."""
        places = self._mapping or range(3)
        black = np.zeros_like(pixels[0])
        planes = [black if source < 0 else pixels[source % len(pixels)] for source in places]
        files = []
        for first in range(0, len(planes), 3):
            file = io.BytesIO()
            Image.fromarray(np.stack(planes[first : first + 3], axis=2)).save(file, "PNG")
            files.append(file.getvalue())
        return b"".join(files)


class Behavior:
    """Agents of one behavior. Their ids stay; episodes end at different times, those of a group together."""

    def __init__(
        self, name, agents, sensors, *, continuous=0, branches=(), groups=False, since=0, old_spec=False
    ):
        self.name, self.agents, self.continuous, self.branches = name, agents, continuous, branches
        self.sensors = sorted(sensors, key=lambda sensor: sensor.name)
        self.groups, self.since, self._old_spec = groups, since, old_spec
        self.asked = []
        self.forbidden = 0
        """Choices that were masked; Unity would carry them out."""
        self.described = False
        self._decisions = [0] * len(agents)

    def describe(self, parameters):
        parameters.brain_name, parameters.is_training = self.name, True
        if self._old_spec:
            parameters.vector_action_size_deprecated.extend(self.branches or [self.continuous])
            parameters.vector_action_space_type_deprecated = 0 if self.branches else 1
            return
        parameters.action_spec.num_continuous_actions = self.continuous
        parameters.action_spec.num_discrete_actions = len(self.branches)
        parameters.action_spec.discrete_branch_sizes.extend(self.branches)

    def speak(self, rng, infos, restarted):
        """Appends this step's rows; returns what each sensor saw, row by row."""
        self.asked = []
        seen = [[] for _ in self.sensors]
        for index, agent in enumerate(self.agents):
            length = 6 if self.groups else 4 + index
            if restarted:
                self._decisions[index] = 0
            elif self._decisions[index] == length:
                self._row(rng, infos, agent, seen, done=True, interrupted=index % 2 == 1)
                self._decisions[index] = 0
            elif rng.rand() < 0.1:
                continue  # decides less often than the others
            self.asked.append(self._row(rng, infos, agent, seen, first=self._decisions[index] == 0))
            self._decisions[index] += 1
        return [
            np.array(rows, np.float32).reshape(-1, *truth_shape(s))
            for rows, s in zip(seen, self.sensors, strict=True)
        ]

    def _row(self, rng, infos, agent, seen, done=False, interrupted=False, first=False):
        info = infos.value.add(id=agent, done=done, max_step_reached=interrupted)
        info.reward = 0.0 if first else 0.5
        if self.groups:
            info.group_id, info.group_reward = 1 + agent % 2, 0.0 if first else 0.25
        mask = [] if done else self._mask(rng)
        info.action_mask.extend(mask)
        for sensor, rows in zip(self.sensors, seen, strict=True):
            proto = info.observations.add(shape=sensor.shape)
            if not self._old_spec:
                proto.name = sensor.name
                proto.dimension_properties.extend(sensor.properties)
                proto.observation_type = GOAL_SIGNAL if sensor.goal else 0
            rows.append(sensor.see(rng, proto))
        return mask

    def _mask(self, rng):
        """At least one choice of each branch stays."""
        forbidden = []
        for size in self.branches:
            branch = rng.rand(size) < 0.4
            branch[rng.randint(size)] = False
            forbidden += branch.tolist()
        return forbidden

    def obey(self, actions):
        """Throws where the C# code would; counts what was forbidden."""
        require(
            len(actions) == len(self.asked), f"{self.name}: {len(actions)} actions, {len(self.asked)} asked"
        )
        for action, mask in zip(actions, self.asked, strict=True):
            sizes = (len(action.continuous_actions), len(action.discrete_actions))
            require(sizes == (self.continuous, len(self.branches)), f"{self.name}: sizes {sizes}")
            require(all(-1 <= value <= 1 for value in action.continuous_actions), f"{action}")
            both = [*action.continuous_actions, *action.discrete_actions]
            require(list(action.vector_actions_deprecated) == both, f"deprecated field: {action}")
            start = 0
            for size, choice in zip(self.branches, action.discrete_actions, strict=True):
                require(0 <= choice < size, f"{self.name}: choice {choice} of {size}")
                self.forbidden += mask[start + choice]
                start += size


def behaviors_of(package):
    """What a build with this package may hold."""
    if package.startswith("1.0"):
        pictures = {"order": "hwc", "memory": "hwc"}
        sensors = [
            Picture("A", 3, 20, 24, mapping=[], **pictures),
            Picture("B", 1, 21, 20, **pictures),
            Vector("C", 3),
        ]
        return [Behavior("Old?team=0", [0, 1, 2], sensors, branches=(3, 2), old_spec=True)]
    if package.startswith("2"):
        pictures = {"order": "hwc", "memory": "hwc"}
        sensors = [
            Picture("CameraSensor", 3, 20, 24, mapping=[0, 1, 2], **pictures),
            Picture("RenderTextureSensor", 2, 24, 20, **pictures),
            Vector("VectorSensor_size3", 3),
        ]
        return [Behavior("Hybrid?team=0", [0, 1, 2], sensors, continuous=2, branches=(4,))]
    # Packages from 3.0.0 on say (C, H, W), and lay floats out as (H, W, C) all the same.
    pictures = {"order": "chw", "memory": "hwc"}
    visual = [
        Picture("CameraSensor", 3, 20, 24, mapping=[0, 1, 2], **pictures),
        Picture("GridSensor", 5, 20, 20, mapping=[0, 1, 2, 3, 4, -1], **pictures),
        Picture("Match3Sensor", 2, 20, 21, **pictures),
        Picture("StackingSensor_size2_Grey", 2, 22, 20, mapping=[0, 0, 0, 1, 1, 1], **pictures),
        Vector("VectorSensor_size3", 3),
    ]
    grouped = [
        Buffer("BufferSensor", 6, 4),
        Vector("VectorSensor_size2_GoalSignal", 2, goal=True),
        Vector("Way", 2),
    ]
    return [
        Behavior("Visual?team=0", [0, 1, 2], visual, branches=(3, 2)),
        Behavior("Team?team=1", [3, 4, 5, 300], grouped, continuous=2, groups=True, since=4),
    ]


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


def truth_shape(sensor):
    return sensor._chw if isinstance(sensor, Picture) else sensor.shape


def record(channel, body):
    return channel.bytes_le + struct.pack("<i", len(body)) + body


def statistic(name, value):
    text = name.encode("ascii")
    return record(STATS, struct.pack("<i", len(text)) + text + struct.pack("<fi", value, 0))


def require(condition, text):
    if not condition:
        raise SystemExit(f"what Unity does not stand: {text}")


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
