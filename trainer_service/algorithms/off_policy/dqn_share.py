"""Deep Q-learning with shared features: what an action is worth depends on what the others make of what they see.

The shared features of the next joint step's targets are those of the target networks throughout.
"""

from __future__ import annotations

from trainer_service.algorithms.common.off_policy.communicating_learner import CommunicatingLearner
from trainer_service.config.hyperparameters.off_policy import ShareSettings
from trainer_service.networks.groups.group_q_network import GroupQNetwork
from trainer_service.networks.groups.shared_features import SharedFeaturesNetwork


class DQNShare(CommunicatingLearner):
    """A learner of features that are averaged around a ring, see SharedFeaturesNetwork."""

    _settings_type = ShareSettings
    _hyper: ShareSettings

    def _make_network(self) -> GroupQNetwork:
        return SharedFeaturesNetwork(
            self._agent_spec, self._settings.network_settings, self._hyper, self._num_agents
        )
