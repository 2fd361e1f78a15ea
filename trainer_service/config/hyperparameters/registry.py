"""The trainer types by name: built-in trainer types, and trainer types of plugins."""

from __future__ import annotations

from trainer_service.config.hyperparameters.common import Hyperparameters
from trainer_service.config.hyperparameters.off_policy import (
    ConsensusSettings,
    CrossQSettings,
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
from trainer_service.plugins import AlgorithmPlugin, settings_class
from unity_bridge.plugins import PluginGroup

_LEARNERS = "trainer_service.learning.algorithms"

TRAINERS: dict[str, AlgorithmPlugin] = {
    "ppo": AlgorithmPlugin(PPOSettings, f"{_LEARNERS}.on_policy.ppo:PPO"),
    "mappo": AlgorithmPlugin(MAPPOSettings, f"{_LEARNERS}.on_policy.mappo:MAPPO"),
    "happo": AlgorithmPlugin(HAPPOSettings, f"{_LEARNERS}.on_policy.happo:HAPPO"),
    "poca": AlgorithmPlugin(POCASettings, f"{_LEARNERS}.on_policy.poca:POCA"),
    "coma": AlgorithmPlugin(COMASettings, f"{_LEARNERS}.on_policy.coma:COMA"),
    "sac": AlgorithmPlugin(SACSettings, f"{_LEARNERS}.off_policy.sac:SAC"),
    "crossq": AlgorithmPlugin(CrossQSettings, f"{_LEARNERS}.off_policy.sac:SAC"),
    "dqn": AlgorithmPlugin(DQNSettings, f"{_LEARNERS}.off_policy.dqn:DQN"),
    "idqn": AlgorithmPlugin(IDQNSettings, f"{_LEARNERS}.off_policy.idqn:make_idqn"),
    "vdn": AlgorithmPlugin(VDNSettings, f"{_LEARNERS}.off_policy.vdn:make_vdn"),
    "qmix": AlgorithmPlugin(QMIXSettings, f"{_LEARNERS}.off_policy.qmix:QMIX"),
    "dqn_share": AlgorithmPlugin(ShareSettings, f"{_LEARNERS}.off_policy.dqn_share:make_dqn_share"),
    "dqn_consensus": AlgorithmPlugin(
        ConsensusSettings, f"{_LEARNERS}.off_policy.dqn_consensus:make_dqn_consensus"
    ),
    "sic": AlgorithmPlugin(SICSettings, f"{_LEARNERS}.off_policy.sic:make_sic"),
    "ddpg": AlgorithmPlugin(DDPGSettings, f"{_LEARNERS}.off_policy.ddpg:DDPG"),
    "td3": AlgorithmPlugin(TD3Settings, f"{_LEARNERS}.off_policy.td3:TD3"),
    "maddpg": AlgorithmPlugin(MADDPGSettings, f"{_LEARNERS}.off_policy.maddpg:MADDPG"),
    "random": AlgorithmPlugin(RandomSettings, f"{_LEARNERS}.common.random_policy:RandomPolicy"),
}
"""The built-in trainer types, declared as plugins declare theirs: settings, and what makes the learner."""

HYPERPARAMETERS: dict[str, type[Hyperparameters]] = {
    name: trainer.settings for name, trainer in TRAINERS.items()
}
"""The settings of each trainer type. One of a plugin comes in when a configuration names it."""

ALGORITHM_PLUGINS = PluginGroup("trainer type", "trainer_service.algorithms", frozenset(HYPERPARAMETERS))
"""Trainer types of other distributions; see ``AlgorithmPlugin``."""

MLAGENTS_TRAINERS = PluginGroup("trainer type", "mlagents.trainer_type")
"""Trainer types that were written for ML-Agents' own trainer."""


def hyperparameters_of(trainer_type: str) -> type[Hyperparameters] | None:
    """The hyperparameters of a trainer type; None if it is neither built-in nor a plugin's. Raises PluginError."""
    return settings_class(HYPERPARAMETERS, ALGORITHM_PLUGINS, trainer_type, AlgorithmPlugin, Hyperparameters)
