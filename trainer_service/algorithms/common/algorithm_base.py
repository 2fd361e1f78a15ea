"""Learners of plugins for interface 1, in which a learner acts itself and has no actor.

This version still supports them, with a warning.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainer_service.algorithms.common.actor import Actor, ActRequest, clipped_actions
from trainer_service.algorithms.common.learner import Learner, Metrics
from trainer_service.algorithms.common.policy_network import PolicyNetwork
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories

_logger = logging.getLogger(__name__)


class AlgorithmBase(ABC):
    """The base of learners of interface 1: without memory, files or a replay buffer. New ones derive from Learner."""

    memory_size: int = 0
    _acting: torch.Generator

    def prepare(self, step: int) -> None:  # noqa: B027  # most have nothing to read
        """Does nothing: there are no files to read."""

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """Returns the continuous actions for the simulator, clip(a, −3, 3)/3."""
        return clipped_actions(decisions.continuous_actions)

    def update_normalizer(self, trajectories: Trajectories) -> None:  # noqa: B027  # not all have one
        """Does nothing: there is no normalizer."""

    def collected(self) -> tuple[int, int] | None:
        """None: updates do not wait for a number of steps."""
        return None

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a run."""

    @abstractmethod
    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads networks and normalizer only."""

    def acting_state(self) -> dict[str, Any]:
        """The whole state."""
        return self.state_dict()

    def load_acting_state(self, state: Mapping[str, Any], seed: int) -> None:
        """Loads the weights, with a new random stream of this seed."""
        self.load_weights(state)
        self._acting.manual_seed(seed)

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """None: there is no replay buffer."""
        return None

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raises ValueError: there is no replay buffer."""
        raise ValueError(f"{type(self).__name__} keeps no experience")


class _AlgorithmActor(Actor):
    """The actor of a learner of interface 1."""

    def __init__(self, algorithm: Any, device: torch.device) -> None:
        self._algorithm = algorithm
        self.device = device
        self.explores = False

    @property
    def memory_size(self) -> int:
        size: int = self._algorithm.memory_size
        return size

    def act(self, request: ActRequest) -> Decisions:
        decisions: Decisions = self._algorithm.act(
            request.observations,
            request.allowed_actions,
            request.memories,
            deterministic=request.deterministic,
        )
        return decisions

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        actions: NDArray[np.float32] = self._algorithm.env_actions(decisions)
        return actions

    def update_normalizer(self, trajectories: Trajectories) -> None:
        self._algorithm.update_normalizer(trajectories)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._algorithm.acting_state()
        return state

    def load_state_dict(self, state: Mapping[str, Any], seed: int) -> None:
        self._algorithm.load_acting_state(state, seed)

    def policy_network(self) -> PolicyNetwork:
        network: PolicyNetwork = self._algorithm.policy_network()
        return network

    def frozen(self, stream: torch.Generator) -> Actor:
        policy = self.policy_network().to(self.device)

        def env_actions(continuous: NDArray[np.float32]) -> NDArray[np.float32]:
            rows = len(continuous)
            none = np.empty((rows, 0), np.float32)
            return self.env_actions(Decisions(continuous, none.astype(np.int64), none[:, 0:0], none))

        return Actor(policy.network, policy.normalizer, stream, self.device, env_actions=env_actions)


class AlgorithmLearner(Learner):
    """Adapts a learner of interface 1 to ``Learner``."""

    def __init__(self, algorithm: Any, device: torch.device) -> None:
        _warn_of(type(algorithm).__name__)
        self._algorithm = algorithm
        self.actor = _AlgorithmActor(algorithm, device)
        self.horizon = algorithm.horizon

    def prepare(self, step: int) -> None:
        self._algorithm.prepare(step)

    def record(self, trajectories: Trajectories) -> None:
        self._algorithm.record(trajectories)

    def ready(self) -> bool:
        ready: bool = self._algorithm.ready()
        return ready

    def collected(self) -> tuple[int, int] | None:
        collected: tuple[int, int] | None = self._algorithm.collected()
        return collected

    def update(self, step: int) -> Metrics:
        metrics: Metrics = self._algorithm.update(step)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._algorithm.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._algorithm.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        self._algorithm.load_weights(state)

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        state: Mapping[str, NDArray[Any]] | None = self._algorithm.replay_state()
        return state

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._algorithm.load_replay_state(state)


@cache
def _warn_of(name: str) -> None:
    """Warns once per class, for any number of its learners."""
    _logger.warning(
        "%s has the plugin interface 1, which the next version does not take; expected a class derived from Learner "
        "with an actor (docs/plugins.md).",
        name,
    )
