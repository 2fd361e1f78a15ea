"""The interface of every learner, as the behavior that owns it uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from trainer_service.algorithms.common.policy_network import PolicyNetwork
from trainer_service.config.run_options import Precision
from trainer_service.networks.shard import ALONE, Shard
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.steps import Observation

Metrics = Mapping[str, float]
"""Scalars of one update, by the tag under which ML-Agents users look for them."""


@dataclass(frozen=True, slots=True)
class Compute:
    """A learner's device and seed, its part of the work, and a callback that hears how far an update is."""

    device: torch.device
    seed: int
    progress: Callable[[int, int], None] = lambda minibatch, of: None
    """Called before every minibatch of a long update, with its number from 0 and how many there are."""
    decoupled: bool = False
    """Whether rollouts may be of an older policy than the present one, so that learners on policy correct for it
    (see ``ops.losses.importance_weights``)."""
    shard: Shard = ALONE
    """The part of each minibatch that this process computes."""
    behavior: str = ""
    """The behavior's name, for the log; empty where nothing is to be logged."""
    precision: Precision = "float32"
    """The precision in which policies and critics encode pictures."""


class Algorithm(Protocol):
    """A policy and the way it learns."""

    horizon: int
    """Steps after which it wants a trajectory that has not come to its end."""

    memory_size: int
    """Floats that it carries from one decision of an agent to the next; 0 for a policy without memory."""

    def prepare(self, step: int) -> None:
        """Reads what it needs besides experience to learn from ``step`` on. Raises UserError."""
        ...

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents: one array [M, …] per sensor, bool [M, sum of branches], and what the last
        decision left each of them to remember, [M, memory_size]: zeros at an episode's start."""
        ...

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """The continuous part as the simulator gets it. Shape [M, continuous size]."""
        ...

    def record(self, trajectories: Trajectories) -> None:
        """Takes finished experience in."""
        ...

    def update_normalizer(self, trajectories: Trajectories) -> None:
        """Lets the normalizer see experience that another algorithm records; ``record`` does so by itself."""
        ...

    def ready(self) -> bool:
        """Whether there is enough experience for an update."""
        ...

    def collected(self) -> tuple[int, int] | None:
        """Steps that wait for the next update, and how many it takes; None where updates follow each other all the
        time."""
        ...

    def update(self, step: int) -> Metrics:
        """Learns. ``step`` places the schedules."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state that a continued run needs: tensors and plain Python only."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result. Raises KeyError, ValueError or RuntimeError where it
        does not fit."""
        ...

    def acting_state(self) -> dict[str, Any]:
        """Everything that acting depends on but random streams: tensors and plain Python only, not copied."""
        ...

    def load_acting_state(self, state: Mapping[str, Any], seed: int) -> None:
        """Acts as the algorithm did that ``acting_state`` is of, from now on.

        seed: of the random stream that actions are drawn from.
        """
        ...

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """The replay buffer, too large for ``state_dict``; None where there is none or it shall not be saved."""
        ...

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues with ``replay_state``'s result, after ``load_state_dict``. Raises KeyError or ValueError where
        it does not fit."""
        ...

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes networks and normalizer only, to start a new run from them."""
        ...

    def policy_network(self) -> PolicyNetwork:
        """A copy of the acting network, as it is now: what a model file is made of."""
        ...
