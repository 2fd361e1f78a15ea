"""QMIX, Rashid et al. 2018 (arXiv:1803.11485): the group's value grows with each agent's, by how much the state says.

The state is the simulator's, or what all agents see side by side. Acting needs neither: a mixer that is monotonic in
each agent's value leaves the best choices the best.
"""

from __future__ import annotations

from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.algorithms.common.off_policy.group_replay import GroupView
from trainer_service.algorithms.common.off_policy.mixer_state import MixerState
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import QMIXSettings
from trainer_service.networks.groups.mixers import MonotonicMixer
from unity_bridge.specs import BehaviorSpec


def make_qmix(spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> GroupQLearner:
    """A learner of values that are mixed by a monotonic network of the state. Its ``update`` is GroupQLearner's.

    Raises ValueError where the behavior has sensors or actions that do not fit.
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
