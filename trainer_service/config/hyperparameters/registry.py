"""The trainer types, by the name that users write."""

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
"""The trainer types, and what each is tuned with."""
