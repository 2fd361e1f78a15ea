"""The trainer types, by the name that users write: built-in ones, and those that plugins offer."""

from __future__ import annotations

from trainer_service.config.hyperparameters.common import Hyperparameters
from trainer_service.config.hyperparameters.off_policy import (
    ConsensusSettings,
    DDPGSettings,
    DQNSettings,
    IDQNSettings,
    MADDPGSettings,
    QMIXSettings,
    RandomSettings,
    SACSettings,
    ShareSettings,
    SICSettings,
    TD3Settings,
    VDNSettings,
)
from trainer_service.config.hyperparameters.on_policy import (
    COMASettings,
    HAPPOSettings,
    MAPPOSettings,
    POCASettings,
    PPOSettings,
)
from trainer_service.plugins import AlgorithmPlugin, load_settings
from unity_bridge.plugins import PluginGroup

HYPERPARAMETERS: dict[str, type[Hyperparameters]] = {
    "ppo": PPOSettings,
    "mappo": MAPPOSettings,
    "happo": HAPPOSettings,
    "poca": POCASettings,
    "coma": COMASettings,
    "sac": SACSettings,
    "dqn": DQNSettings,
    "idqn": IDQNSettings,
    "vdn": VDNSettings,
    "qmix": QMIXSettings,
    "dqn_share": ShareSettings,
    "dqn_consensus": ConsensusSettings,
    "sic": SICSettings,
    "ddpg": DDPGSettings,
    "td3": TD3Settings,
    "maddpg": MADDPGSettings,
    "random": RandomSettings,
}
"""The trainer types, and what each is tuned with. One of a plugin comes in when a configuration names it."""

ALGORITHM_PLUGINS = PluginGroup("trainer type", "trainer_service.algorithms", frozenset(HYPERPARAMETERS))
"""Trainer types of other distributions; see ``AlgorithmPlugin``."""

MLAGENTS_TRAINERS = PluginGroup("trainer type", "mlagents.trainer_type")
"""Trainer types that were written for ML-Agents' own trainer."""


def hyperparameters_of(trainer_type: str) -> type[Hyperparameters] | None:
    """The hyperparameters of a trainer type; None if it is neither built-in nor a plugin's. Raises PluginError."""
    if trainer_type not in HYPERPARAMETERS and trainer_type in ALGORITHM_PLUGINS.offered():
        HYPERPARAMETERS[trainer_type] = load_settings(
            ALGORITHM_PLUGINS, trainer_type, AlgorithmPlugin, Hyperparameters
        )
    return HYPERPARAMETERS.get(trainer_type)
