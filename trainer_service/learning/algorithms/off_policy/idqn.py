"""Independent deep Q-learning, Tampuu et al. 2017 (arXiv:1511.08779): every agent of a group learns independently.

With double Q-learning by default, van Hasselt et al. 2016. For each agent, the other agents are part of the
environment.
"""

from __future__ import annotations

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import IDQNSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from unity_bridge.specs import BehaviorSpec


def make_idqn(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """Makes a learner of each agent's own values, from the agent's rewards.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    require_settings(settings, IDQNSettings)
    return GroupQLearner(spec, settings, compute)
