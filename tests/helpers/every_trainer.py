"""Settings for little work and a scene for every trainer type: a new one is covered by being registered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from short_episodes import GROUP, SENSOR

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.registry import open_scene
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

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
    "sac": {"replay": {"type": "prioritized"}},
    "dqn": {"n_step": 2},
    "ddpg": {"noise": "ou"},
    "td3": {"noise": "ou"},
    "idqn": {"replay": {"type": "prioritized"}},
    "vdn": {"replay": {"type": "prioritized"}},
    "qmix": {"replay": {"type": "prioritized"}},
}
"""Hyperparameters by trainer type, for whole runs with what is off by default."""
SMALL = {"hidden_units": 8, "num_layers": 1}
"""The network of short runs."""
CURIOSITY = {"extrinsic": {}, "curiosity": {"strength": 0.1, "network_settings": SMALL}}
ACTIONS = (ActionSpec(0, (3,)), ActionSpec(2, ()))
"""The first of these that a type takes is what agents of ShortEpisodes do."""


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


def learner_of(values: Mapping[str, Any]) -> Any:
    """A learner with these settings, of the scene of its trainer type."""
    scene, _ = scene_of(values["trainer_type"])
    (spec,) = open_scene(f"sim:{scene}").behaviors.values()
    settings = TrainerSettings.model_validate(values)
    return ALGORITHMS[settings.trainer_type](spec, settings, Compute(torch.device("cpu"), 1))


def combinations() -> Iterator[Any]:
    """Every trainer type with memory and without, with curiosity and without, as parameters of a test."""
    for trainer_type, hyper in HYPERPARAMETERS.items():
        for memory in (None, "lstm") if hyper.supports_memory else (None,):
            for curious in (False, True) if hyper.supports_reward_models else (False,):
                words = (trainer_type, memory or "plain", "curiosity" if curious else "own")
                yield pytest.param(trainer_type, memory, curious, id="-".join(words))


def settings_for(trainer_type: str, memory: str | None, curious: bool, **changes: Any) -> TrainerSettings:
    """Settings of a combination for ShortEpisodes.

    memory: the recurrent layer's type; None without. changes: further hyperparameters.
    """
    given = settings_of(trainer_type, max_steps=10_000)
    hyper = given["hyperparameters"]
    hyper |= {"batch_size": 12} if "batch_size" in hyper else {}
    # Four whole episodes: nothing is left over when a run is saved, or at the end.
    hyper |= {"buffer_size": 48} if hyper.get("buffer_size") == 128 else {}
    if HYPERPARAMETERS[trainer_type].learns_by_group:
        hyper["group_size"] = GROUP
    hyper |= changes
    remembers = {"type": memory, "memory_size": 8, "sequence_length": 4}
    network = {**SMALL, "normalize": True, "memory": remembers if memory else None}
    signals = CURIOSITY if curious else {"extrinsic": {}}
    return TrainerSettings.model_validate({**given, "network_settings": network, "reward_signals": signals})


def make_behavior(
    settings: TrainerSettings, actions: ActionSpec, *, seed: int, device: str = "cpu"
) -> Behavior:
    """A behavior of ShortEpisodes, ready to learn."""
    spec = BehaviorSpec((ObservationSpec("seen", (SENSOR,)),), actions)
    behavior = Behavior("Probe", spec, settings, Compute(torch.device(device), seed))
    behavior.prepare()
    return behavior


def actions_of(settings: TrainerSettings) -> ActionSpec:
    """The first of ACTIONS that a behavior with these settings takes."""
    for actions in ACTIONS:
        try:
            make_behavior(settings, actions, seed=1)
        except Exception as refusal:
            last = refusal
        else:
            return actions
    raise last
