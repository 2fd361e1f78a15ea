"""Messages for the Unity Editor's usage statistics. Names that users chose are never sent."""

from __future__ import annotations

import json
import platform
from typing import Any

from trainer_service.config import RunOptions, TrainerSettings
from trainer_service.config.environment_parameters import lessons_of
from unity_bridge.codec.protocol import PACKAGE_VERSION
from unity_bridge.side_channels import (
    TrainingBehaviorInitialized,
    TrainingEnvironmentInitialized,
    hashed_name,
)

CAPABILITY = "trainingAnalytics"
"""The capability of simulators that accept these messages."""

_NAMED_BY_USERS = frozenset({"behaviors", "environment_parameters"})
"""Configuration sections whose keys are names."""

_NAMES = frozenset(
    {
        "name", "behavior", "run_id", "initialize_from", "results_dir",
        "env_path", "env_args", "init_path", "demo_path",
    }
)  # fmt: skip
"""Configuration keys whose values are names or paths."""


def environment_message(
    options: RunOptions, *, torch_version: str, device_type: str
) -> TrainingEnvironmentInitialized:
    """Returns the message about the start of a run, for its first simulator."""
    return TrainingEnvironmentInitialized(
        mlagents_version=PACKAGE_VERSION,
        mlagents_envs_version=PACKAGE_VERSION,
        python_version=platform.python_version(),
        torch_version=torch_version,
        torch_device_type=device_type,
        num_envs=options.env_settings.num_envs,
        num_environment_parameters=len(options.environment_parameters or {}),
        run_options=json.dumps(_without_names(options.model_dump(mode="json"))),
    )


def anonymous_environment_message() -> TrainingEnvironmentInitialized:
    """Returns the message about the start of a run for its other simulators, without details."""
    return TrainingEnvironmentInitialized(
        mlagents_version="Custom",
        mlagents_envs_version=PACKAGE_VERSION,
        python_version=platform.python_version(),
        torch_version="Unknown",
        torch_device_type="Unknown",
    )


def behavior_message(
    name: str, settings: TrainerSettings, options: RunOptions
) -> TrainingBehaviorInitialized:
    """Returns the message about the start of a behavior's training."""
    network, rewards = settings.network_settings, settings.reward_signals
    return TrainingBehaviorInitialized(
        behavior_name=hashed_name(name),
        trainer_type=settings.trainer_type,
        extrinsic_reward_enabled="extrinsic" in rewards,
        gail_reward_enabled="gail" in rewards,
        curiosity_reward_enabled="curiosity" in rewards,
        rnd_reward_enabled="rnd" in rewards,
        behavioral_cloning_enabled=settings.behavioral_cloning is not None,
        recurrent_enabled=network.memory is not None,
        visual_encoder=network.vis_encode_type,
        num_network_layers=network.num_layers,
        num_network_hidden_units=network.hidden_units,
        trainer_threaded=settings.threaded,
        self_play_enabled=settings.self_play is not None,
        curriculum_enabled=_has_lessons(name, options),
        config=json.dumps(_without_names(settings.model_dump(mode="json"))),
    )


def _has_lessons(behavior: str, options: RunOptions) -> bool:
    return any(
        lesson.completion_criteria is not None and lesson.completion_criteria.behavior == behavior
        for name, parameter in (options.environment_parameters or {}).items()
        for lesson in lessons_of(name, parameter)
    )


def _without_names(value: Any, key: str = "") -> Any:
    """Returns a configuration as JSON, with user-defined names replaced by their hashes."""
    if isinstance(value, dict):
        return {
            hashed_name(each) if key in _NAMED_BY_USERS else each: _without_names(inner, each)
            for each, inner in value.items()
        }
    if isinstance(value, list):
        return [_without_names(inner, key) for inner in value]
    return hashed_name(value) if key in _NAMES and isinstance(value, str) else value
