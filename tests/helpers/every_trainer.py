"""Settings for little work and a scene for every trainer type: a new one is covered by being registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer_service.algorithms import ALGORITHMS, Compute
from trainer_service.config import TrainerSettings
from unity_bridge.simulators.registry import open_scene

SCENES = {"alone": ("basic", "3dball"), "group": ("switch2", "spread")}
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "batch_size": {False: 64, True: 32},
    "buffer_size": {False: 128, True: 1000},
    "buffer_init_steps": {True: 40},
    "steps_per_update": {True: 16},
    "save_replay_buffer": {True: True},
    "learning_rate_schedule": {False: "constant"},
}
"""Hyperparameters for little work, for types that have them: values by whether it learns from a replay buffer."""
MORE: Mapping[str, Mapping[str, Any]] = {
    "dqn": {"n_step": 2},
    "ddpg": {"noise": "ou"},
    "td3": {"noise": "ou"},
    "idqn": {"replay": {"type": "prioritized"}},
    "vdn": {"replay": {"type": "prioritized"}},
    "qmix": {"replay": {"type": "prioritized"}},
}
"""Hyperparameters by trainer type, for whole runs with what is off by default."""


def settings_of(trainer_type: str, **more: Any) -> dict[str, Any]:
    hyper = TrainerSettings.model_validate({"trainer_type": trainer_type}).hyperparameters
    values = {
        key: by_kind[hyper.learns_from_replay]
        for key, by_kind in CHANGES.items()
        if key in type(hyper).model_fields and hyper.learns_from_replay in by_kind and hyper.learns
    }
    return {
        "trainer_type": trainer_type,
        "hyperparameters": {**values, **MORE.get(trainer_type, {})},
        "time_horizon": 25,
        "checkpoint_interval": 10**6,
        **more,
    }


def scene_of(trainer_type: str) -> tuple[str, str]:
    """The first scene whose sensors and actions this type takes, and its behavior."""
    settings = TrainerSettings.model_validate(settings_of(trainer_type))
    refusals = []
    for scene in SCENES["group" if settings.hyperparameters.learns_by_group else "alone"]:
        ((behavior_id, spec),) = open_scene(f"sim:{scene}").behaviors.items()
        try:
            ALGORITHMS[trainer_type](spec, settings, Compute(torch.device("cpu"), 1))
        except ValueError as refusal:
            refusals.append(f"{scene}: {refusal}")
        else:
            return scene, behavior_id.partition("?")[0]
    raise AssertionError(f"{trainer_type} takes none of these scenes: {refusals}")
