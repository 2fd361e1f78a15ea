"""Outputs of ML-Agents' own networks, for the test that ours give the same.

Weights and inputs come from a formula, so the file holds nothing but answers. It was made with mlagents 1.1.0
and torch 2.2.2, in an environment of their own (Python 3.10): ``python make.py`` writes answers.npz beside it.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np

ROWS = 4
SIGNALS = ("extrinsic", "curiosity")
BRANCHES = (3, 2)
CONTINUOUS = 2

VECTOR = ("vector", (5,), (1,), 0)
GOAL = ("goal", (3,), (1,), 1)
OTHER_GOAL = ("other goal", (2,), (1,), 1)
ENTITIES = ("entities", (6, 3), (4, 1), 0)
OTHERS = ("others", (2, 4), (4, 1), 0)
LISTED_GOAL = ("listed goal", (6, 3), (4, 1), 1)


def picture(channels, height, width, goal=0):
    return ("picture", (channels, height, width), (1, 2, 2), goal)


CASES = {
    "vector": ([VECTOR], {}),
    "no layers": ([VECTOR], {"num_layers": 0}),
    "simple": ([VECTOR, picture(3, 27, 20)], {"vis_encode_type": "simple"}),
    "nature_cnn": ([picture(1, 36, 45), VECTOR], {"vis_encode_type": "nature_cnn"}),
    "resnet": ([VECTOR, picture(2, 15, 22)], {"vis_encode_type": "resnet"}),
    "match3": ([VECTOR, picture(4, 9, 5)], {"vis_encode_type": "match3"}),
    "fully_connected": ([VECTOR, picture(2, 1, 3)], {"vis_encode_type": "fully_connected"}),
    "entities": ([ENTITIES], {}),
    "entities of two kinds": ([ENTITIES, VECTOR, OTHERS], {}),
    "goal": ([VECTOR, GOAL], {}),
    "goal, one layer": ([GOAL, VECTOR], {"num_layers": 1}),
    "two goals": ([GOAL, VECTOR, OTHER_GOAL], {"num_layers": 3}),
    "goal as an input": ([VECTOR, GOAL], {"goal_conditioning_type": "none"}),
    "goal in a picture": ([VECTOR, picture(3, 20, 21, goal=1)], {}),
    "listed goal": ([LISTED_GOAL, VECTOR], {}),
    "everything": ([ENTITIES, GOAL, OTHERS, picture(3, 20, 24), VECTOR], {"num_layers": 3}),
}
"""Sensors as (name, shape, dimension properties, type), and what differs from the settings' defaults."""


def numbers(name, shape):
    """Numbers between −1 and 1 that depend on nothing but a name: splitmix64, counted up from its checksum."""
    state = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 20)
    state *= np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return (state / 2.0**63 - 1.0).astype(np.float32).reshape(shape)


def weights(name, shape):
    """Draws one tensor, so large that features keep their size from layer to layer."""
    fan_in = math.prod(shape[1:]) if len(shape) > 1 else 3.0
    return numbers(name, shape) * np.float32((3.0 / fan_in) ** 0.5)


def inputs(sensors):
    """One array [ROWS, *shape] per sensor. Of entities some are absent, in the first row all."""
    arrays = []
    for name, shape, _, _ in sensors:
        array = numbers(name, (ROWS, *shape)) * np.float32(2.0)
        if len(shape) == 3:
            array = abs(array) / np.float32(2.0)
        if len(shape) == 2:
            array[0] = 0.0
            array[1, 1:] = 0.04  # squares add up to less than 0.01
            array[2, 0] = 0.0
        arrays.append(array)
    return arrays


def answers(sensors, settings):
    """Returns what the actor's body makes of the inputs, and the critic's values."""
    import torch
    from mlagents.trainers import settings as theirs
    from mlagents.trainers.torch_entities.networks import SimpleActor, ValueNetwork
    from mlagents_envs import base_env as env

    specs = [
        env.ObservationSpec(shape, tuple(map(env.DimensionProperty, flags)), env.ObservationType(kind), name)
        for name, shape, flags, kind in sensors
    ]
    enums = {"vis_encode_type": theirs.EncoderType, "goal_conditioning_type": theirs.ConditioningType}
    known = {key: enums[key](value) if key in enums else value for key, value in settings.items()}
    network_settings = theirs.NetworkSettings(hidden_units=16, **known)
    actor = SimpleActor(specs, network_settings, env.ActionSpec(CONTINUOUS, BRANCHES))
    critic = ValueNetwork(list(SIGNALS), specs, network_settings)
    with torch.no_grad():
        for module in (actor, critic):
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(torch.from_numpy(weights(name, tuple(parameter.shape))))
        seen = [torch.from_numpy(array) for array in inputs(sensors)]
        features, _ = actor.network_body(seen)
        values, _ = critic(seen)
    return features.numpy(), np.stack([values[signal].numpy() for signal in SIGNALS], axis=1)


def main():
    arrays = {}
    for name, case in CASES.items():
        arrays[f"{name}: features"], arrays[f"{name}: values"] = answers(*case)
    np.savez_compressed(Path(__file__).with_name("answers.npz"), **arrays)


if __name__ == "__main__":
    main()
