"""The real ML-Agents reads a recording, or writes one as its own tests do. Runs in its environment.

demo_loader.py read FILE.demo OUT.npz     what its loader makes of the file, and its spec
demo_loader.py write FILE.demo            its writer's file of a hybrid behavior with a picture, never closed
"""

from __future__ import annotations

import io
import json
import sys

import numpy as np
from mlagents.trainers.buffer import BufferKey
from mlagents.trainers.demo_loader import demo_to_buffer, write_demo
from mlagents.trainers.trajectory import ObsUtil
from mlagents_envs.communicator_objects.agent_info_action_pair_pb2 import AgentInfoActionPairProto
from mlagents_envs.communicator_objects.brain_parameters_pb2 import ActionSpecProto, BrainParametersProto
from mlagents_envs.communicator_objects.demonstration_meta_pb2 import DemonstrationMetaProto
from mlagents_envs.communicator_objects.observation_pb2 import PNG
from PIL import Image

EPISODES, STEPS = 3, 6


def read(path: str, target: str) -> None:
    spec, buffer = demo_to_buffer(path, 1)
    found = {"done": buffer[BufferKey.DONE], "reward": buffer[BufferKey.ENVIRONMENT_REWARDS]}
    if spec.action_spec.continuous_size:
        found["continuous"] = buffer[BufferKey.CONTINUOUS_ACTION]
    if spec.action_spec.discrete_size:
        found["discrete"] = buffer[BufferKey.DISCRETE_ACTION]
    for sensor in range(len(spec.observation_specs)):
        found[f"observation_{sensor}"] = buffer[ObsUtil.get_name_at(sensor)]
    described = {
        "continuous": spec.action_spec.continuous_size,
        "branches": list(spec.action_spec.discrete_branches),
        "sensors": [[sensor.name, list(sensor.shape)] for sensor in spec.observation_specs],
    }
    np.savez(target, spec=json.dumps(described), **{name: np.array(field) for name, field in found.items()})


def picture(value: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((5, 4, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(path: str) -> None:
    """Writes as its RecordEnvironment does: a pair holds the observation after a step and that step's action."""
    brain = BrainParametersProto(
        brain_name="Recorded",
        action_spec=ActionSpecProto(
            num_continuous_actions=2, num_discrete_actions=1, discrete_branch_sizes=[4]
        ),
    )
    pairs = []
    for episode in range(EPISODES):
        for step in range(STEPS):
            pair = AgentInfoActionPairProto()
            pair.agent_info.id = episode
            pair.agent_info.reward = step / 8
            pair.agent_info.observations.add(shape=[2]).float_data.data.extend([episode, step])
            pair.agent_info.observations.add(
                shape=[3, 5, 4], compression_type=PNG, compressed_data=picture(10 * episode + step)
            )
            pair.action_info.continuous_actions.extend([step / 4, -episode / 4])
            pair.action_info.discrete_actions.append((episode + step) % 4)
            pairs.append(pair)
    write_demo(path, DemonstrationMetaProto(), brain, pairs)


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
