"""Value decomposition networks, Sunehag et al. 2018 (arXiv:1706.05296): agents' values add up to the group's.

The group learns from its rewards, and the sum divides the value among agents. Each agent acts independently, since all
agents' best choices give the largest sum.
"""

from __future__ import annotations

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import VDNSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.networks.groups.mixers import SumMixer
from unity_bridge.specs import BehaviorSpec


def make_vdn(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """Makes a learner of agents' values whose sum is the group's value.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    require_settings(settings, VDNSettings)
    return GroupQLearner(spec, settings, compute, make_mixer=SumMixer)
