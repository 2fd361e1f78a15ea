"""Sharing is caring: deep Q-learning of agents that exchange learned messages."""

from __future__ import annotations

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import SICSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.networks.groups.messages import MessageNetwork
from unity_bridge.specs import BehaviorSpec


def make_sic(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """Makes a learner of agents that read all messages of their group, see MessageNetwork.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    require_settings(settings, SICSettings)
    return GroupQLearner(spec, settings, compute, make_network=MessageNetwork)
