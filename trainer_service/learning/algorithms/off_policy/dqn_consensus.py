"""Deep Q-learning with shared features, whose value heads are averaged over the group at intervals."""

from __future__ import annotations

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ConsensusSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.networks.groups.shared_features import SharedFeaturesNetwork
from unity_bridge.specs import BehaviorSpec


def make_dqn_consensus(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """Makes a learner like DQNShare with equal value heads of all agents, and different features.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    hyper = require_settings(settings, ConsensusSettings)
    return GroupQLearner(
        spec, settings, compute, make_network=SharedFeaturesNetwork, consensus_every=hyper.consensus_every
    )
