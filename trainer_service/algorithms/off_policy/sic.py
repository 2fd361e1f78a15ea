"""Sharing is caring: deep Q-learning of agents that send each other messages, which they learn to write."""

from __future__ import annotations

from trainer_service.algorithms.common.off_policy.communicating_learner import CommunicatingLearner
from trainer_service.config.hyperparameters.off_policy import SICSettings
from trainer_service.networks.groups.group_q_network import GroupQNetwork
from trainer_service.networks.groups.messages import MessageNetwork


class SIC(CommunicatingLearner):
    """A learner of agents that read all messages of their group, see MessageNetwork."""

    _settings_type = SICSettings
    _hyper: SICSettings

    def _make_network(self) -> GroupQNetwork:
        return MessageNetwork(
            self._agent_spec, self._settings.network_settings, self._hyper, self._num_agents
        )
