"""What learners have in common whose agents tell each other what they see: then acting takes the whole group."""

from __future__ import annotations

from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.networks.encoders.group_normalizer import GroupNormalizer
from trainer_service.networks.encoders.normalizer import ObservationNormalizer


class CommunicatingLearner(GroupQLearner):
    """Every agent's action comes from everyone's observations: in training, and whenever the policy is used.

    The observation selector adds them as a sensor. The replay does not keep that: a joint step has them all.
    """

    def _make_normalizer(self) -> ObservationNormalizer:
        """With one scale for what an agent sees itself and what it is told."""
        normalize = self._settings.network_settings.normalize
        return GroupNormalizer(self._spec.observation_specs, normalize=normalize)

    def _follows_agents(self) -> bool:
        """Never: what agents tell each other must be of the same joint step, whoever's rewards they learn from."""
        return False
