"""QMIX, Rashid et al. 2018 (arXiv:1803.11485): the group's value is monotonic in each agent's, mixed by the state.

The state is the simulator's, or all agents' concatenated observations. Acting does not need it: since the mixer is
monotonic in each agent's value, each agent's best choice is best for the group.
"""

from __future__ import annotations

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import QMIXSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.algorithms.common.off_policy.group_replay import GroupView
from trainer_service.learning.algorithms.common.off_policy.mixer_state import MixerState
from trainer_service.learning.networks.groups.mixers import MonotonicMixer
from unity_bridge.specs import BehaviorSpec


def make_qmix(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """Makes a learner with a monotonic mixer of the state. Its ``update`` is GroupQLearner's.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    hyper = require_settings(settings, QMIXSettings)
    state = MixerState(GroupView.of(spec, hyper.num_agents), hyper.state, compute.device)
    network = settings.network_settings

    def mixer() -> MonotonicMixer:
        return MonotonicMixer(
            hyper.num_agents,
            state.size,
            hyper.mixer_units,
            hyper.hypernet_units,
            layer_norm=network.layer_norm,
            keep_scale=network.keep_scale,
        )

    return GroupQLearner(spec, settings, compute, make_mixer=mixer, mixer_state=state)
