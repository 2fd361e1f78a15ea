"""The learners, by their ``trainer_type`` in the configuration."""

from __future__ import annotations

from collections.abc import Callable

from trainer_service.config import Hyperparameters, TrainerSettings
from trainer_service.config.hyperparameters.registry import ALGORITHM_PLUGINS, TRAINERS
from trainer_service.learning.algorithms.common.learner import Compute, Learner
from trainer_service.learning.algorithms.common.policy_network import PolicyNetwork
from trainer_service.learning.algorithms.common.random_policy import RandomPolicy
from trainer_service.learning.algorithms.off_policy.dqn import DQN
from trainer_service.learning.algorithms.off_policy.maddpg import MADDPG
from trainer_service.learning.algorithms.off_policy.qmix import QMIX
from trainer_service.learning.algorithms.off_policy.sac import SAC
from trainer_service.learning.algorithms.on_policy.ppo import PPO
from trainer_service.learning.networks.encoders.precision import pictures_in
from trainer_service.plugins import AlgorithmPlugin, guarded, load_factory
from unity_bridge.errors import PluginError
from unity_bridge.specs import BehaviorSpec

LearnerFactory = Callable[[BehaviorSpec, TrainerSettings, Compute], Learner]
"""A factory of learners. Raises ValueError if the settings do not support the behavior, as the learner observes it."""

ALGORITHMS: dict[str, LearnerFactory] = {name: trainer.load_factory() for name, trainer in TRAINERS.items()}
"""Factories by trainer type. A plugin's factory is added when its first learner is made."""


def make_learner(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> Learner:
    """Makes the learner of the settings.

    Raises ValueError if it does not support the behavior, PluginError if its plugin cannot be used.
    """
    name = settings.trainer_type
    if name not in ALGORITHMS:
        if name not in ALGORITHM_PLUGINS.offered():
            raise PluginError(f"no trainer type '{name}': the distribution that offered it is not installed")
        factory = load_factory(ALGORITHM_PLUGINS, name, AlgorithmPlugin, Hyperparameters)
        ALGORITHMS[name] = guarded(factory, str(ALGORITHM_PLUGINS.offered()[name]))
    with pictures_in(compute.precision):
        learner = ALGORITHMS[name](spec, settings, compute)
    if not isinstance(learner, Learner):
        raise PluginError(f"trainer type '{name}': expected a Learner, got {learner!r}")
    return learner


__all__ = [
    "ALGORITHMS",
    "DQN",
    "MADDPG",
    "PPO",
    "QMIX",
    "SAC",
    "Compute",
    "Learner",
    "LearnerFactory",
    "PolicyNetwork",
    "RandomPolicy",
    "make_learner",
]
