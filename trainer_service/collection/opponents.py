"""Frozen policies of earlier selves, which the teams act with that do not learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trainer_service.algorithms import Algorithm, Compute
from trainer_service.algorithms.common.frozen_policy import ActingPolicy, FrozenPolicy, without_critic

Weights = Mapping[str, Any]
"""The state dict of a policy: tensors by name."""


@dataclass(slots=True, eq=False)
class Snapshot:
    """An earlier policy of a behavior."""

    weights: Weights
    step: int
    """Agent steps of the behavior when the snapshot was taken."""
    rating: float


class Opponents(Protocol):
    """What the teams of a behavior act as: the rules of self-play, or what a worker was told of them."""

    def opponent(self, team: int) -> Snapshot | None:
        """The snapshot that a team acts as; None for the newest policy, which the learning team always has."""
        ...


class OpponentPolicies:
    """The policies of a behavior's teams under self-play.

    Every team that acts as a snapshot has a frozen policy of its own, into which the snapshot's weights are loaded
    when it first acts. What its agents remember stays through a swap, until their episodes end.
    """

    def __init__(self, opponents: Opponents, algorithm: Algorithm, compute: Compute) -> None:
        self._opponents = opponents
        self._algorithm = algorithm
        self._device = compute.device
        self._noise = torch.Generator(compute.device).manual_seed(compute.seed + 3)
        self._frozen: dict[int, tuple[Snapshot, FrozenPolicy]] = {}

    def policy(self, team: int) -> ActingPolicy:
        """The policy that acts for a team: the algorithm's newest one, or a frozen one."""
        snapshot = self._opponents.opponent(team)
        if snapshot is None:
            return self._algorithm
        loaded, policy = self._frozen.get(team, (None, None))
        if policy is None:
            # Teams that are gone need none any more.
            self._frozen = {
                other: kept for other, kept in self._frozen.items() if self._opponents.opponent(other)
            }
            network = without_critic(self._algorithm.policy_network())
            policy = FrozenPolicy(network, self._device, self._noise)
        if loaded is not snapshot:
            policy.load(snapshot.weights)
            self._frozen[team] = snapshot, policy
        return policy

    def reseed(self, seed: int) -> None:
        """Draws the actions of snapshots from a stream of this seed from now on."""
        self._noise.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a continued run needs: tensors and plain Python only."""
        return {"acting": self._noise.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result. Raises KeyError where it is none."""
        self._noise.set_state(state["acting"].cpu())
