"""A policy that acts at random and learns nothing: what every learner should beat.

Choices are uniform among the allowed ones, numbers uniform in [−1, 1]. Its likeliest action is random too, since none
is likelier than another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.algorithms.common.acting import to_array, to_tensor
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.algorithm_base import AlgorithmBase
from trainer_service.algorithms.common.policy_network import PolicyNetwork, UniformPolicyNetwork
from trainer_service.config import TrainerSettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.policies.uniform import UniformNetwork
from trainer_service.networks.random_streams import random_stream, restore_streams
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


class RandomPolicy(AlgorithmBase):
    """One behavior's random policy."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        self._device = compute.device
        self._sensors = spec.observation_specs
        self._network = UniformNetwork(spec).to(self._device)
        self._acting = random_stream(compute.seed + 1)
        self.horizon = settings.time_horizon

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Draws for M agents, ``deterministic`` or not."""
        parameters = self._network.policy([to_tensor(sensor, self._device) for sensor in observations])
        allowed = to_tensor(allowed_actions, self._device)
        numbers, choices, log_probs = self._network.actions.sample(parameters, allowed, self._acting)
        return Decisions(to_array(numbers), to_array(choices), to_array(log_probs), memories)

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """Continuous actions as they are: in [−1, 1] already."""
        return decisions.continuous_actions

    def record(self, trajectories: Trajectories) -> None:
        """Forgets the trajectories."""

    def ready(self) -> bool:
        """False: it never learns."""
        return False

    def update(self, step: int) -> Metrics:
        """Learns nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state of the random stream."""
        return {"acting": self._acting.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with that random stream."""
        restore_streams({"acting": self._acting}, state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Does nothing: there are no weights."""

    def acting_state(self) -> dict[str, Any]:
        """Nothing: it acts without weights."""
        return {}

    def load_acting_state(self, state: Mapping[str, Any], seed: int) -> None:
        """Draws from a stream of that seed."""
        self._acting.manual_seed(seed)

    def policy_network(self) -> PolicyNetwork:
        """The policy to be exported: a model draws from its engine's random stream."""
        return UniformPolicyNetwork(ObservationNormalizer(self._sensors, normalize=False), self._network)
