"""A policy that acts at random and learns nothing: a baseline for every learner.

Discrete actions are uniform among the allowed choices, continuous actions uniform in [−1, 1]. Its likeliest action is
random too, since all are equally likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms.common.actor import Actor, bounded_actions
from trainer_service.learning.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.learning.algorithms.common.policy_network import UniformPolicyNetwork
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.policies.uniform import UniformNetwork
from trainer_service.learning.networks.random_streams import random_stream, restore_streams
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec


class RandomPolicy(Learner):
    """One behavior's random policy."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        stream = random_stream(compute.seed + 1)
        self.actor = Actor(
            UniformNetwork(spec, stream).to(compute.device),
            ObservationNormalizer(spec.observation_specs, normalize=False),
            stream,
            compute.device,
            env_actions=bounded_actions,
            model=UniformPolicyNetwork,
        )
        self.horizon = settings.time_horizon

    def record(self, trajectories: Trajectories) -> None:
        """Discards the trajectories."""

    def ready(self) -> bool:
        """False: it never learns."""
        return False

    def update(self, step: int) -> Metrics:
        """Learns nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state of the random stream."""
        return {"acting": self.actor.stream.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the random stream."""
        restore_streams({"acting": self.actor.stream}, state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Does nothing: there are no weights."""
