"""A base for algorithms: what most of them have to say in the same words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainer_service.algorithms.common.algorithm import Metrics
from trainer_service.algorithms.common.policy_network import PolicyNetwork
from trainer_service.networks.policies.action_heads import SQUASH_LIMIT
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.steps import Observation

_SQUASH_LIMIT, _ONE = np.float32(SQUASH_LIMIT), np.float32(1.0)


class AlgorithmBase(ABC):
    """An ``Algorithm`` that remembers nothing between decisions, reads nothing beforehand and has no replay buffer.

    Whatever of that an algorithm does have, it overwrites; see ``Algorithm`` for what each method promises.
    """

    horizon: int
    """Steps after which it wants a trajectory that has not come to its end."""

    memory_size: int = 0
    """Floats that it carries from one decision of an agent to the next."""

    _acting: torch.Generator
    """The random stream that actions are drawn from."""

    @abstractmethod
    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents."""

    @abstractmethod
    def record(self, trajectories: Trajectories) -> None:
        """Takes finished experience in."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether there is enough experience for an update."""

    @abstractmethod
    def update(self, step: int) -> Metrics:
        """Learns."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state that a continued run needs: tensors and plain Python only."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there."""

    @abstractmethod
    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes networks and normalizer only."""

    @abstractmethod
    def policy_network(self) -> PolicyNetwork:
        """A copy of the acting network, to be exported."""

    def prepare(self, step: int) -> None:  # noqa: B027  # most have nothing to read
        """Does nothing: there is nothing to read."""

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """Continuous actions as the simulator gets them, clip(a, −3, 3)/3: a unit Gaussian's bulk covers [−1, 1].

        Exported models do the same (``PolicyNetwork.squash``).
        """
        if not decisions.continuous_actions.shape[1]:
            return decisions.continuous_actions
        scaled: NDArray[np.float32] = decisions.continuous_actions / _SQUASH_LIMIT
        np.maximum(scaled, -_ONE, out=scaled)
        return np.minimum(scaled, _ONE, out=scaled)

    def update_normalizer(self, trajectories: Trajectories) -> None:  # noqa: B027  # not all have one
        """Does nothing: there is no normalizer."""

    def collected(self) -> tuple[int, int] | None:
        """None: nothing is said of how far the next update is."""
        return None

    def acting_state(self) -> dict[str, Any]:
        """All of its state; an algorithm says what part acting needs where the rest is large."""
        return self.state_dict()

    def load_acting_state(self, state: Mapping[str, Any], seed: int) -> None:
        """Acts with these weights, and draws from a stream of that seed."""
        self.load_weights(state)
        self._acting.manual_seed(seed)

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """None: there is no replay buffer."""
        return None

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raises ValueError: there is no replay buffer."""
        raise ValueError(f"{type(self).__name__} keeps no experience")
