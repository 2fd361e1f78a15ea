"""Sharing is caring: deep Q-learning of agents that send each other messages, which they learn to write."""

from __future__ import annotations

from trainer_service.algorithms.communicating_learner import CommunicatingLearner
from trainer_service.config.value_settings import SICSettings
from trainer_service.networks.messages import MessageNetwork
from trainer_service.networks.team_q_network import TeamQNetwork
from unity_bridge.specs import BehaviorSpec


class SIC(CommunicatingLearner):
    """Everyone reads everyone's message, see MessageNetwork."""

    _settings_type = SICSettings
    _hyper: SICSettings

    def _make_network(self, own: BehaviorSpec) -> TeamQNetwork:
        return MessageNetwork(own, self._settings.network_settings, self._hyper, self._places)
