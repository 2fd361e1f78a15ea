"""The interface of every learner, as used by its behavior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from trainer_service.config import Hyperparameters, NetworkSettings, TrainerSettings
from trainer_service.config.run_options import Precision
from trainer_service.learning.algorithms.common.actor import Actor
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.replay.hindsight import GoalTask
from trainer_service.learning.rollout.sensor_roles import SensorRole
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec

Metrics = Mapping[str, float]
"""Scalars of one update, by the tags of ML-Agents."""


_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Compute:
    """The device, seed and part of the work of a learner, and a callback for the progress of its updates."""

    device: torch.device = _CPU
    seed: int = 0
    progress: Callable[[int, int], None] = lambda minibatch, of: None
    """Called before every minibatch of a long update, with its number from 0 and the number of minibatches."""
    decoupled: bool = False
    """Whether rollouts may be of an older policy than the present one, so that on-policy learners must correct for it
    (see ``ops.losses.importance_weights``)."""
    shard: Shard = SINGLE_RANK
    """This process's part of each minibatch."""
    behavior: str = ""
    """The behavior's name for the log; empty without logging."""
    precision: Precision = "float32"
    """The precision in which policies and critics encode pictures, for ``make_learner``."""
    goal_task: GoalTask | None = None
    """The reward function of a goal environment, for replay of type ``hindsight``."""


def learner_arguments(
    spec: BehaviorSpec,
    settings: TrainerSettings | Hyperparameters,
    network: NetworkSettings | Compute | None,
    compute: Compute | None,
) -> tuple[TrainerSettings, Compute]:
    """Completes the arguments of a learner. Raises ValueError if they contradict each other.

    spec: as the learner observes the behavior. settings: of the behavior, or hyperparameters, with defaults for all
    other settings. network: only with hyperparameters; it may be left out, with ``compute`` in its place.
    """
    if isinstance(network, Compute) and compute is None:
        network, compute = None, network
    if isinstance(settings, Hyperparameters):
        ids = SensorRole.AGENT_ID.added(settings.num_agents)  # which a run's selector adds to the spec
        if settings.needs_agent_index and spec.observation_specs[-1] != ids:
            raise ValueError(
                f"expected SensorRole.AGENT_ID.added({ids.size}), the agents' ids, as the last sensor"
            )
        settings = TrainerSettings.of(settings, network_settings=network or NetworkSettings())
    elif network is not None:
        raise TypeError("expected network settings with hyperparameters only: TrainerSettings have their own")
    return settings, compute or Compute()


class Learner(ABC):
    """A behavior's actor, the collected experience, and the learning rule.

    States contain tensors and plain Python values only. With equal states, experience and seeds, updates are equal.
    """

    actor: Actor
    """Computes actions of the behavior's agents with the newest weights."""

    horizon: int
    """The most steps of a trajectory. Longer episodes are cut."""

    schedule_lead: int = 0
    """Difference between the next update's ``step`` and the behavior's own, from the budget of environment steps."""

    def prepare(self, step: int) -> None:
        """Starts learning at ``step``: enables exploration, reads files such as demonstrations. Raises UserError."""
        self.actor.explores = True

    @abstractmethod
    def record(self, trajectories: Trajectories) -> None:
        """Adds finished experience, and updates the statistics of the actor's normalizer."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether there is enough experience for an update."""

    def collected(self) -> tuple[int, int] | None:
        """Steps collected for the next update, and the steps that it needs; None if updates do not wait for steps."""
        return None

    @abstractmethod
    def update(self, step: int) -> Metrics:
        """Makes an update. step: position in the schedules."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a run, without the replay buffer."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result. Raises KeyError, ValueError or RuntimeError if it does not fit."""

    @abstractmethod
    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads networks and normalizer only, for a new run."""

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """The replay buffer, which is too large for ``state_dict``; None if there is none or it is not saved."""
        return None

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores ``replay_state``'s result, after ``load_state_dict``.

        Raises KeyError or ValueError if it does not fit.
        """
        raise ValueError(f"{type(self).__name__} keeps no experience")
