"""A behavior under self-play: the rules of it, joined with the policies that they call for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainer_service.algorithms import Algorithm, Compute
from trainer_service.algorithms.common.frozen_policy import ActingPolicy, FrozenPolicy, without_critic
from trainer_service.behaviors.self_play import SelfPlay, Snapshot, TurnScheduler, Weights
from trainer_service.config import SelfPlaySettings


class OpponentPolicies:
    """Says who acts for each team of a behavior, and keeps its snapshots and its rating.

    Every team that plays as a snapshot has a frozen policy of its own, into which the snapshot's weights are loaded
    when it first acts. What its agents remember stays through a swap, until their episodes end.
    """

    def __init__(
        self, settings: SelfPlaySettings, scheduler: TurnScheduler, algorithm: Algorithm, compute: Compute
    ) -> None:
        self._algorithm = algorithm
        self._device = compute.device
        self._noise = torch.Generator(compute.device).manual_seed(compute.seed + 3)
        self._rules = SelfPlay(settings, scheduler, compute.seed)
        self._frozen: dict[int, tuple[Snapshot, FrozenPolicy]] = {}

    @property
    def rating(self) -> float:
        """Elo of the newest policy."""
        return self._rules.rating

    @property
    def ghost_steps(self) -> int:
        """Agent steps of teams that were not learning."""
        return self._rules.ghost_steps

    def register_team(self, team: int) -> None:
        """A team of the behavior takes part from now on."""
        self._rules.register_team(team)

    def remove_team(self, team: int) -> bool:
        """No agent plays in the team any more. Returns whether another team learns from now on."""
        self._frozen.pop(team, None)
        return self._rules.remove_team(team)

    def learns(self, team: int) -> bool:
        """Whether what the team lives through is learned from."""
        return self._rules.learns(team)

    def count_ghost_steps(self, transitions: int) -> None:
        """A team that does not learn has lived through these."""
        self._rules.ghost_steps += transitions

    def rate(self, results: Sequence[float]) -> list[float]:
        """Counts games of the learning team: 1 won, ½ drawn, 0 lost. Returns the rating after each."""
        return self._rules.rate(results)

    def actor(self, team: int) -> ActingPolicy:
        """Who acts for the team."""
        snapshot = self._rules.opponent(team)
        if snapshot is None:
            return self._algorithm
        loaded, policy = self._frozen.get(team, (None, None))
        if policy is None:
            network = without_critic(self._algorithm.policy_network())
            policy = FrozenPolicy(network, self._device, self._noise)
        if loaded is not snapshot:
            policy.load(snapshot.weights)
            self._frozen[team] = snapshot, policy
        return policy

    def advance(self, step: int, *, finished: bool) -> bool:
        """Takes a snapshot and ends the turn, where they are due. Returns whether another team learns now."""
        return self._rules.advance(step, self._weights, finished=finished)

    def choose_opponents(self, step: int) -> None:
        """Chooses opponents anew where that is due, after every behavior has advanced."""
        self._rules.choose_opponents(step)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a continued run needs: tensors and plain Python only."""
        return {"rules": self._rules.state_dict(), "acting": self._noise.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result. Raises KeyError where it is none."""
        self._rules.load_state_dict(state["rules"])
        self._noise.set_state(state["acting"].cpu())

    def _weights(self) -> Weights:
        return without_critic(self._algorithm.policy_network()).state_dict()
