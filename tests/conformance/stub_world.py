"""The world of a build of each Unity package: sensors, agents, episodes, masks and groups.

    behaviors_of("2.0.1")

Sensors write themselves into the real ML-Agents' messages, and say what they truly saw: pictures as (C, H, W) in
[0, 1].
"""

import io

import numpy as np
from mlagents_envs.communicator_objects.observation_pb2 import GOAL_SIGNAL, PNG
from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
NONE, EQUIVARIANCE, VARIABLE = 1, 2, 4


class Vector:
    def __init__(self, name, size, goal=False):
        self.name, self.properties, self.goal = name, (NONE,), goal
        self.shape = self.true_shape = (size,)

    def see(self, rng, proto):
        values = rng.normal(size=self.shape).astype(np.float32)
        values[rng.rand(*self.shape) < 0.3] = 0.0
        proto.float_data.data.extend(values)
        return values


class Buffer:
    """Up to so many entities; the rest are rows of zeros."""

    goal = False

    def __init__(self, name, most, size):
        self.name, self.properties = name, (VARIABLE, NONE)
        self.shape = self.true_shape = (most, size)

    def see(self, rng, proto):
        values = np.zeros(self.shape, np.float32)
        values[: rng.randint(self.shape[0] + 1)] = 1.0 + rng.rand(*self.shape)[0]
        proto.float_data.data.extend(values.ravel())
        return values


class Picture:
    """A camera or a grid: ``order`` is how the shape is declared, ``memory`` how floats lie."""

    goal = False

    def __init__(self, name, channels, height, width, *, order, memory, mapping=None):
        self.name, self._memory, self._mapping = name, memory, mapping
        self.true_shape = (channels, height, width)
        if order == "chw":
            self.shape, self.properties = self.true_shape, (NONE, EQUIVARIANCE, EQUIVARIANCE)
        else:
            self.shape, self.properties = (height, width, channels), (EQUIVARIANCE, EQUIVARIANCE, NONE)

    def see(self, rng, proto):
        pixels = rng.randint(256, size=self.true_shape).astype(np.uint8)
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
        """RGB files back to back: at each place the channel that it is mapped to, or black where that is −1."""
        places = self._mapping or range(3)
        black = np.zeros_like(pixels[0])
        planes = [black if channel < 0 else pixels[channel] for channel in places]
        return b"".join(
            as_file(np.stack(planes[first : first + 3], axis=2)) for first in range(0, len(planes), 3)
        )


class Stack(Picture):
    """Two pictures of four channels, two files each. Of one that is not there yet comes a single black file."""

    def __init__(self, name, height, width, *, order, memory):
        mapping = [0, 1, 2, 3, -1, -1, 4, 5, 6, 7, -1, -1]
        super().__init__(name, 8, height, width, order=order, memory=memory, mapping=mapping)

    def see(self, rng, proto):
        truth = super().see(rng, proto)
        if rng.rand() < 0.3:
            _, _, *latest = split_files(proto.compressed_data)
            proto.compressed_data = as_file(np.zeros((*truth.shape[1:], 3), np.uint8)) + b"".join(latest)
            truth[:4] = 0.0
        return truth


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
            np.array(rows, np.float32).reshape(-1, *s.true_shape)
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
        """A mask that leaves at least one choice of each branch."""
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
    """The parts that a build with this package may hold."""
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
        Stack("StackingSensor_size2_Grid", 20, 20, **pictures),
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


def as_file(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def split_files(data):
    return [SIGNATURE + rest for rest in data.split(SIGNATURE)[1:]]


def require(condition, text):
    if not condition:
        raise SystemExit(f"what Unity does not stand: {text}")
