"""Sharing is caring: deep Q-learning of agents that send each other messages, which they learn to write."""

from __future__ import annotations

from typing import ClassVar

from trainer_service.algorithms.communicating_learner import CommunicatingLearner
from trainer_service.config.value_settings import SICSettings, TeamValueSettings
from trainer_service.networks.messages import MessageNetwork
from trainer_service.networks.team_q_network import TeamQNetwork
from unity_bridge.specs import BehaviorSpec


class SIC(CommunicatingLearner):
    """Everyone reads everyone's message, see MessageNetwork."""

    _settings_type: ClassVar[type[TeamValueSettings]] = SICSettings

    def _make_network(self, own: BehaviorSpec) -> TeamQNetwork:
        if not isinstance(self._hyper, SICSettings):
            raise ValueError(f"sic was given the settings of {type(self._hyper).__name__}")
        return MessageNetwork(own, self._settings.network_settings, self._hyper, self._places)
