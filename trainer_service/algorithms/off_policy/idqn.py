"""Independent deep Q-learning, Tampuu et al. 2017 (arXiv:1511.08779): every agent of a group learns for itself.

With two estimates by default, as van Hasselt et al. 2016. To each agent the others are a part of the world.
"""

from __future__ import annotations

from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.config.hyperparameters.off_policy import IDQNSettings


class IDQN(GroupQLearner):
    """A learner of values of its own for each agent, from the agent's rewards."""

    _settings_type = IDQNSettings
