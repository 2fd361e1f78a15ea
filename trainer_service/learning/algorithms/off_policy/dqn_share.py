"""Deep Q-learning with shared features: an action's value depends on features of the other agents' observations.

In targets, the shared features of the next joint step are always those of the target networks.
"""

from __future__ import annotations

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ShareSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.networks.groups.shared_features import SharedFeaturesNetwork
from unity_bridge.specs import BehaviorSpec


def make_dqn_share(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """Makes a learner with features that are averaged in a ring, see SharedFeaturesNetwork.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    require_settings(settings, ShareSettings)
    return GroupQLearner(spec, settings, compute, make_network=SharedFeaturesNetwork)
