"""The library of learners: algorithms, networks, rewards, replay and rollout, without files and processes.

A program that has its own loop imports from here, and settings from ``trainer_service.config``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_service.learning.algorithms import PPO as PPO
    from trainer_service.learning.algorithms import QMIX as QMIX
    from trainer_service.learning.algorithms import SAC as SAC
    from trainer_service.learning.algorithms import Compute as Compute
    from trainer_service.learning.algorithms import Learner as Learner
    from trainer_service.learning.algorithms.common.actor import ActRequest as ActRequest
    from trainer_service.learning.rollout.assembler import Decisions as Decisions
    from trainer_service.learning.rollout.assembler import TrajectoryAssembler as TrajectoryAssembler
    from trainer_service.learning.rollout.sensor_roles import SensorRole as SensorRole
    from trainer_service.learning.rollout.trajectories import GroupIndex as GroupIndex
    from trainer_service.learning.rollout.trajectories import Trajectories as Trajectories

_HOME = {
    **dict.fromkeys(("PPO", "QMIX", "SAC", "Compute", "Learner"), "algorithms"),
    "ActRequest": "algorithms.common.actor",
    **dict.fromkeys(("Decisions", "TrajectoryAssembler"), "rollout.assembler"),
    "SensorRole": "rollout.sensor_roles",
    **dict.fromkeys(("GroupIndex", "Trajectories"), "rollout.trajectories"),
}


def __getattr__(name: str) -> Any:
    # Fetched when first used: records of trajectories need no torch.
    if name in _HOME:
        return getattr(importlib.import_module(f"trainer_service.learning.{_HOME[name]}"), name)
    raise AttributeError(f"module 'trainer_service.learning' has no attribute '{name}'")
