"""The base of learners whose agents communicate observations, so that acting takes the whole group."""

from __future__ import annotations

from trainer_service.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.networks.encoders.group_normalizer import GroupNormalizer
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.members import sensors_of_agents


class CommunicatingLearner(GroupQLearner):
    """A learner whose agents act on the observations of their whole group, in training and afterwards.

    The observation selector adds them as a sensor. The replay does not keep that: a joint step has them all.
    """

    def _make_normalizer(self) -> ObservationNormalizer:
        """A normalizer with one scale for an agent's own observations and for the communicated ones."""
        normalize = self._settings.network_settings.normalize
        has_sensor = sensors_of_agents(self._spec)
        return GroupNormalizer(self._spec.observation_specs, normalize=normalize, has_sensor=has_sensor)

    def _follows_agents(self) -> bool:
        """False: communicated observations must be of the same joint step, whichever rewards are learned from."""
        return False
