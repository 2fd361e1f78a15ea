"""Deep Q-learning with shared features: what an action is worth depends on what the others make of what they see.

The shared features of the next joint step's targets are those of the target networks throughout.
"""

from __future__ import annotations

from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.algorithms.common.off_policy.group_replay import GroupView
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ShareSettings
from trainer_service.networks.groups.shared_features import SharedFeaturesNetwork
from unity_bridge.specs import BehaviorSpec


def make_dqn_share(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """A learner of features that are averaged around a ring, see SharedFeaturesNetwork.

    Raises ValueError where the behavior has sensors or actions that do not fit.
    """
    hyper = require_settings(settings, ShareSettings)

    def network(view: GroupView) -> SharedFeaturesNetwork:
        return SharedFeaturesNetwork(view.agent_spec, settings.network_settings, hyper, view.num_agents)

    return GroupQLearner(spec, settings, compute, make_network=network)
