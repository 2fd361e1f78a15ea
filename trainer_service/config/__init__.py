"""The configuration of a run: ML-Agents' YAML, read strictly."""

from trainer_service.config.changes import changed_activations as changed_activations
from trainer_service.config.changes import changed_networks as changed_networks
from trainer_service.config.distributed import DistributedSettings as DistributedSettings
from trainer_service.config.environment_parameters import CurriculumSettings as CurriculumSettings
from trainer_service.config.environment_parameters import Lesson as Lesson
from trainer_service.config.environment_parameters import Sampler as Sampler
from trainer_service.config.hyperparameters.common import Hyperparameters as Hyperparameters
from trainer_service.config.hyperparameters.common import Schedule as Schedule
from trainer_service.config.hyperparameters.off_policy import QMIXSettings as QMIXSettings
from trainer_service.config.hyperparameters.off_policy import SACSettings as SACSettings
from trainer_service.config.hyperparameters.on_policy import (
    OnPolicyHyperparameters as OnPolicyHyperparameters,
)
from trainer_service.config.hyperparameters.on_policy import POCASettings as POCASettings
from trainer_service.config.hyperparameters.on_policy import PPOSettings as PPOSettings
from trainer_service.config.hyperparameters.registry import HYPERPARAMETERS as HYPERPARAMETERS
from trainer_service.config.names import validate_behavior_name as validate_behavior_name
from trainer_service.config.names import validate_run_id as validate_run_id
from trainer_service.config.network import MemorySettings as MemorySettings
from trainer_service.config.network import NetworkSettings as NetworkSettings
from trainer_service.config.players import PlayerName as PlayerName
from trainer_service.config.players import parse_player as parse_player
from trainer_service.config.reading.advice import without_updates as without_updates
from trainer_service.config.reading.bundled import BundledConfig as BundledConfig
from trainer_service.config.reading.bundled import bundled_configs as bundled_configs
from trainer_service.config.reading.check import FileCheck as FileCheck
from trainer_service.config.reading.check import check_files as check_files
from trainer_service.config.reading.check import missing_demonstrations as missing_demonstrations
from trainer_service.config.reading.loader import LoadedOptions as LoadedOptions
from trainer_service.config.reading.loader import dump_run_options as dump_run_options
from trainer_service.config.reading.loader import load_run_options as load_run_options
from trainer_service.config.reading.loader import parse_run_options as parse_run_options
from trainer_service.config.reading.used_plugins import missing_plugins as missing_plugins
from trainer_service.config.reading.used_plugins import plugins_in as plugins_in
from trainer_service.config.reading.used_plugins import plugins_of as plugins_of
from trainer_service.config.reading.used_plugins import refused_plugins as refused_plugins
from trainer_service.config.rewards import REWARD_SIGNALS as REWARD_SIGNALS
from trainer_service.config.rewards import ExtrinsicSettings as ExtrinsicSettings
from trainer_service.config.rewards import RewardSignalSettings as RewardSignalSettings
from trainer_service.config.run_options import CheckpointSettings as CheckpointSettings
from trainer_service.config.run_options import EngineSettings as EngineSettings
from trainer_service.config.run_options import EnvironmentSettings as EnvironmentSettings
from trainer_service.config.run_options import EvaluationSettings as EvaluationSettings
from trainer_service.config.run_options import RunOptions as RunOptions
from trainer_service.config.run_options import TorchSettings as TorchSettings
from trainer_service.config.schema import json_schema as json_schema
from trainer_service.config.self_play import SELF as SELF
from trainer_service.config.self_play import SelfPlaySettings as SelfPlaySettings
from trainer_service.config.trainer import BehavioralCloningSettings as BehavioralCloningSettings
from trainer_service.config.trainer import TrainerSettings as TrainerSettings
