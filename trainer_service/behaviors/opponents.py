"""Frozen policies of earlier selves, which the teams act with that do not learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer_service.algorithms import Algorithm, Compute
from trainer_service.algorithms.common.frozen_policy import ActingPolicy, FrozenPolicy, without_critic
from trainer_service.behaviors.self_play import SelfPlay, Snapshot, Weights


class OpponentPolicies:
    """The policies of a behavior's teams under self-play.

    Every team that acts as a snapshot has a frozen policy of its own, into which the snapshot's weights are loaded
    when it first acts. What its agents remember stays through a swap, until their episodes end.
    """

    def __init__(self, rules: SelfPlay, algorithm: Algorithm, compute: Compute) -> None:
        self.rules = rules
        """Which team learns, and which snapshot each of the others acts as."""
        self._algorithm = algorithm
        self._device = compute.device
        self._noise = torch.Generator(compute.device).manual_seed(compute.seed + 3)
        self._frozen: dict[int, tuple[Snapshot, FrozenPolicy]] = {}

    def policy(self, team: int) -> ActingPolicy:
        """The policy that acts for a team: the algorithm's newest one, or a frozen one."""
        snapshot = self.rules.opponent(team)
        if snapshot is None:
            return self._algorithm
        loaded, policy = self._frozen.get(team, (None, None))
        if policy is None:
            # Teams that are gone need none any more.
            self._frozen = {other: kept for other, kept in self._frozen.items() if self.rules.opponent(other)}
            network = without_critic(self._algorithm.policy_network())
            policy = FrozenPolicy(network, self._device, self._noise)
        if loaded is not snapshot:
            policy.load(snapshot.weights)
            self._frozen[team] = snapshot, policy
        return policy

    def weights(self) -> Weights:
        """A copy of what the newest policy acts with."""
        return without_critic(self._algorithm.policy_network()).state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a continued run needs: tensors and plain Python only."""
        return {"rules": self.rules.state_dict(), "acting": self._noise.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result. Raises KeyError where it is none."""
        self.rules.load_state_dict(state["rules"])
        self._noise.set_state(state["acting"].cpu())
