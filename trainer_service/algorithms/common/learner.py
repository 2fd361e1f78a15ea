"""The interface of every learner, as the behavior that owns it uses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from trainer_service.algorithms.common.actor import Actor
from trainer_service.config.run_options import Precision
from trainer_service.networks.shard import SINGLE_RANK, Shard
from trainer_service.replay.hindsight import GoalTask
from trainer_service.rollout.trajectories import Trajectories

Metrics = Mapping[str, float]
"""Scalars of one update, by the tag under which ML-Agents users look for them."""


@dataclass(frozen=True, slots=True)
class Compute:
    """The device, seed and part of the work of a learner, and a callback for the progress of its updates."""

    device: torch.device
    seed: int
    progress: Callable[[int, int], None] = lambda minibatch, of: None
    """Called before every minibatch of a long update, with its number from 0 and how many there are."""
    decoupled: bool = False
    """Whether rollouts may be of an older policy than the present one, so that learners on policy correct for it
    (see ``ops.losses.importance_weights``)."""
    shard: Shard = SINGLE_RANK
    """The part of each minibatch that this process computes."""
    behavior: str = ""
    """The behavior's name, for the log; empty where nothing is to be logged."""
    precision: Precision = "float32"
    """The precision in which policies and critics encode pictures."""
    goal_task: GoalTask | None = None
    """The reward function of a goal environment, for replay of type ``hindsight``."""


class Learner(ABC):
    """A behavior's actor, the experience that it waits to learn from, and the rule by which it learns.

    States hold tensors and plain Python only. With equal states, equal experience and equal seeds, updates are equal.
    """

    actor: Actor
    """Decides for the behavior's agents with the newest weights."""

    horizon: int
    """Steps after which the learner takes a trajectory that has not come to its end."""

    schedule_lead: int = 0
    """Agent steps that the next update's ``step`` is ahead of the behavior's own, as environment steps place it."""

    def prepare(self, step: int) -> None:
        """Begins to learn at ``step``: exploration is on, and files are read that it learns from. Raises UserError."""
        self.actor.explores = True

    @abstractmethod
    def record(self, trajectories: Trajectories) -> None:
        """Adds finished experience, also to the statistics of the actor's normalizer."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether there is enough experience for an update."""

    def collected(self) -> tuple[int, int] | None:
        """Steps that wait for the next update, and how many it takes; None where updates do not wait for steps."""
        return None

    @abstractmethod
    def update(self, step: int) -> Metrics:
        """Learns from the experience. ``step`` places the schedules."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state that a continued run needs, without the replay buffer."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result. Raises KeyError, ValueError or RuntimeError where it does not fit."""

    @abstractmethod
    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes networks and normalizer only, to start a new run from them."""

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """The replay buffer, too large for ``state_dict``; None where there is none or it shall not be saved."""
        return None

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues with ``replay_state``'s result, after ``load_state_dict``.

        Raises KeyError or ValueError where it does not fit.
        """
        raise ValueError(f"{type(self).__name__} keeps no experience")
