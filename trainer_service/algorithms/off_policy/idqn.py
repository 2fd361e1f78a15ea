"""Independent deep Q-learning, Tampuu et al. 2017 (arXiv:1511.08779): every agent of a group learns for itself.

With two estimates by default, as van Hasselt et al. 2016. To each agent the others are a part of the world.
"""

from __future__ import annotations

from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import IDQNSettings
from unity_bridge.specs import BehaviorSpec


def make_idqn(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """A learner of values of its own for each agent, from the agent's rewards.

    Raises ValueError where the behavior has sensors or actions that do not fit.
    """
    require_settings(settings, IDQNSettings)
    return GroupQLearner(spec, settings, compute)
