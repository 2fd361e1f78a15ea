"""The learners, by the name that users write as ``trainer_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_service.algorithms.algorithm import Algorithm, Compute
from trainer_service.algorithms.coma import COMA
from trainer_service.algorithms.ddpg import DDPG
from trainer_service.algorithms.dqn import DQN
from trainer_service.algorithms.dqn_consensus import DQNConsensus
from trainer_service.algorithms.dqn_share import DQNShare
from trainer_service.algorithms.happo import HAPPO
from trainer_service.algorithms.idqn import IDQN
from trainer_service.algorithms.maddpg import MADDPG
from trainer_service.algorithms.mappo import MAPPO
from trainer_service.algorithms.poca import POCA
from trainer_service.algorithms.policy_network import PolicyNetwork
from trainer_service.algorithms.ppo import PPO
from trainer_service.algorithms.qmix import QMIX
from trainer_service.algorithms.random_policy import RandomPolicy
from trainer_service.algorithms.sac import SAC
from trainer_service.algorithms.sic import SIC
from trainer_service.algorithms.vdn import VDN
from trainer_service.config import TrainerSettings
from unity_bridge.specs import BehaviorSpec

ALGORITHMS: Mapping[str, Callable[[BehaviorSpec, TrainerSettings, Compute], Algorithm]] = {
    "ppo": PPO,
    "sac": SAC,
    "mappo": MAPPO,
    "happo": HAPPO,
    "poca": POCA,
    "coma": COMA,
    "dqn": DQN,
    "idqn": IDQN,
    "vdn": VDN,
    "qmix": QMIX,
    "dqn_share": DQNShare,
    "dqn_consensus": DQNConsensus,
    "sic": SIC,
    "ddpg": DDPG,
    "maddpg": MADDPG,
    "random": RandomPolicy,
}

__all__ = [
    "ALGORITHMS",
    "COMA",
    "DDPG",
    "DQN",
    "HAPPO",
    "IDQN",
    "MADDPG",
    "MAPPO",
    "POCA",
    "PPO",
    "QMIX",
    "SAC",
    "SIC",
    "VDN",
    "Algorithm",
    "Compute",
    "DQNConsensus",
    "DQNShare",
    "PolicyNetwork",
    "RandomPolicy",
]
