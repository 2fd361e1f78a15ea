"""QMIX, Rashid et al. 2018 (arXiv:1803.11485): the group's value is monotonic in each agent's, mixed by the state.

The state is the simulator's, or all agents' concatenated observations. Acting does not need it: since the mixer is
monotonic in each agent's value, each agent's best choice is best for the group.
"""

from __future__ import annotations

from trainer_service.config import NetworkSettings, QMIXSettings, TrainerSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, learner_arguments
from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.algorithms.common.off_policy.group_replay import GroupView
from trainer_service.learning.algorithms.common.off_policy.mixer_state import MixerState
from trainer_service.learning.networks.groups.mixers import MonotonicMixer
from unity_bridge.specs import BehaviorSpec


class QMIX(GroupQLearner):
    """A learner with a monotonic mixer of the state.

    ``update`` and ``td_errors`` are GroupQLearner's. With a mixer there is one error per joint step:
    Q_tot(taken) − (Σ r + γ Q_tot'(next)).
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: TrainerSettings | QMIXSettings,
        network: NetworkSettings | Compute | None = None,
        compute: Compute | None = None,
    ) -> None:
        """Arguments as in ``learner_arguments``. Raises ValueError if the sensors or actions are not supported."""
        settings, compute = learner_arguments(spec, settings, network, compute)
        hyper, networks = require_settings(settings, QMIXSettings), settings.network_settings
        state = MixerState(GroupView.of(spec, hyper.num_agents), hyper.state, compute.device)

        def mixer() -> MonotonicMixer:
            return MonotonicMixer(
                hyper.num_agents,
                state.size,
                hyper.mixer_units,
                hyper.hypernet_units,
                layer_norm=networks.layer_norm,
                keep_scale=networks.keep_scale,
            )

        super().__init__(spec, settings, compute, make_mixer=mixer, mixer_state=state)
