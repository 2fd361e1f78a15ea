"""The configuration of a run: ML-Agents' YAML, read strictly."""

from trainer_service.config.changes import changed_activations, changed_networks
from trainer_service.config.distributed import DistributedSettings
from trainer_service.config.environment_parameters import CurriculumSettings, Lesson, Sampler
from trainer_service.config.hyperparameters.common import Hyperparameters, Schedule
from trainer_service.config.hyperparameters.off_policy import SACSettings
from trainer_service.config.hyperparameters.on_policy import (
    OnPolicyHyperparameters,
    POCASettings,
    PPOSettings,
)
from trainer_service.config.hyperparameters.registry import HYPERPARAMETERS
from trainer_service.config.names import validate_behavior_name, validate_run_id
from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.config.players import PlayerName, parse_player
from trainer_service.config.reading.bundled import BundledConfig, bundled_configs, nearest_bundled
from trainer_service.config.reading.check import FileCheck, check_files, missing_demonstrations
from trainer_service.config.reading.loader import (
    LoadedOptions,
    dump_run_options,
    load_run_options,
    parse_run_options,
)
from trainer_service.config.reading.used_plugins import (
    missing_plugins,
    plugins_in,
    plugins_of,
    refused_plugins,
)
from trainer_service.config.rewards import REWARD_SIGNALS, ExtrinsicSettings, RewardSignalSettings
from trainer_service.config.run_options import (
    CheckpointSettings,
    EngineSettings,
    EnvironmentSettings,
    EvaluationSettings,
    RunOptions,
    TorchSettings,
)
from trainer_service.config.schema import json_schema
from trainer_service.config.self_play import SELF, SelfPlaySettings
from trainer_service.config.trainer import BehavioralCloningSettings, TrainerSettings

__all__ = [
    "HYPERPARAMETERS",
    "REWARD_SIGNALS",
    "SELF",
    "BehavioralCloningSettings",
    "BundledConfig",
    "CheckpointSettings",
    "CurriculumSettings",
    "DistributedSettings",
    "EngineSettings",
    "EnvironmentSettings",
    "EvaluationSettings",
    "ExtrinsicSettings",
    "FileCheck",
    "Hyperparameters",
    "Lesson",
    "LoadedOptions",
    "MemorySettings",
    "NetworkSettings",
    "OnPolicyHyperparameters",
    "POCASettings",
    "PPOSettings",
    "PlayerName",
    "RewardSignalSettings",
    "RunOptions",
    "SACSettings",
    "Sampler",
    "Schedule",
    "SelfPlaySettings",
    "TorchSettings",
    "TrainerSettings",
    "bundled_configs",
    "changed_activations",
    "changed_networks",
    "check_files",
    "dump_run_options",
    "json_schema",
    "load_run_options",
    "missing_demonstrations",
    "missing_plugins",
    "nearest_bundled",
    "parse_player",
    "parse_run_options",
    "plugins_in",
    "plugins_of",
    "refused_plugins",
    "validate_behavior_name",
    "validate_run_id",
]
