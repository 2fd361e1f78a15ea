"""Analytics messages: facts of a run, and no name that a user chose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainer_service.config import RunOptions, parse_run_options
from trainer_service.running.collection import analytics
from unity_bridge.side_channels import hashed_name

SECRETS = (
    "SecretBall",
    "secret_height",
    "SecretLesson",
    "secret_run",
    "secret_results",
    "secret.safetensors",
    "secret.exe",
)


@pytest.fixture
def options() -> RunOptions:
    criteria = {"behavior": "SecretBall", "threshold": 1}
    lessons = [
        {"name": "SecretLesson", "value": 1, "completion_criteria": criteria},
        {"name": "SecretLesson2", "value": 2},
    ]
    given: dict[str, Any] = {
        "behaviors": {
            "SecretBall": {"init_path": "secret.safetensors", "network_settings": {"num_layers": 3}},
            "Other": {},
        },
        "environment_parameters": {"secret_height": {"curriculum": lessons}, "mass": 1},
        "checkpoint_settings": {"run_id": "secret_run", "results_dir": "secret_results"},
        "env_settings": {"env_path": "secret.exe", "env_args": ["--secret.safetensors"], "num_envs": 2},
    }
    return parse_run_options(given).options


def test_a_run_is_described_without_a_name(options: RunOptions) -> None:
    message = analytics.environment_message(options, torch_version="2.9.0", device_type="cpu")
    assert (message.num_envs, message.num_environment_parameters) == (2, 2)
    assert (message.torch_version, message.torch_device_type) == ("2.9.0", "cpu")
    told = json.loads(message.run_options)
    assert list(told["behaviors"]) == [hashed_name("SecretBall"), hashed_name("Other")]
    first = told["environment_parameters"][hashed_name("secret_height")]["curriculum"][0]
    assert first["name"] == hashed_name("SecretLesson")
    assert first["completion_criteria"]["behavior"] == hashed_name("SecretBall")
    assert told["env_settings"]["env_args"] == [hashed_name("--secret.safetensors")]
    for secret in SECRETS:
        assert secret not in message.run_options


def test_a_behavior_is_described_without_a_name(options: RunOptions) -> None:
    message = analytics.behavior_message("SecretBall", options.behaviors["SecretBall"], options)
    assert message.behavior_name == hashed_name("SecretBall")
    assert (message.trainer_type, message.extrinsic_reward_enabled) == ("ppo", True)
    assert (message.num_network_layers, message.curriculum_enabled) == (3, True)
    assert json.loads(message.config)["init_path"] == hashed_name("secret.safetensors")
    other = analytics.behavior_message("Other", options.behaviors["Other"], options)
    assert not other.curriculum_enabled
