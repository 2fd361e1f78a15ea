"""The learners, by the name that users write as ``trainer_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_service.algorithms.algorithm import Algorithm, Compute
from trainer_service.algorithms.policy_network import PolicyNetwork
from trainer_service.algorithms.ppo import PPO
from trainer_service.algorithms.sac import SAC
from trainer_service.config import TrainerSettings
from unity_bridge.specs import BehaviorSpec

ALGORITHMS: Mapping[str, Callable[[BehaviorSpec, TrainerSettings, Compute], Algorithm]] = {
    "ppo": PPO,
    "sac": SAC,
}

__all__ = ["ALGORITHMS", "PPO", "SAC", "Algorithm", "Compute", "PolicyNetwork"]
