"""Opponents under self-play: snapshots of the learner and fixed players, for sides that do not learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer_service.config import PlayerName
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.actor import Actor
from trainer_service.learning.networks.random_streams import random_stream, restore_streams
from trainer_service.running.collection.policy_actor import PolicyActor
from trainer_service.running.collection.records import BehaviorTick
from trainer_service.running.policy import Policy, random_policy
from trainer_service.running.runs.checkpoint import Checkpoint, spec_mismatch
from unity_bridge.side_channels import parse_expert
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

Weights = Mapping[str, Any]
"""The state dict of a policy: tensors by name."""

_FADING = 0.99
"""Factor by which each new game reduces the weight of earlier games, as in AlphaStar's league (Vinyals et al. 2019)."""


@dataclass(slots=True)
class Results:
    """Discounted results of learners' games against an opponent."""

    games: float = 0.0
    won: float = 0.0
    """Games that the learners won; a draw counts half."""

    @property
    def win_rate(self) -> float:
        """The learners' win rate; ½ before the first game."""
        return self.won / self.games if self.games else 0.5

    def add(self, result: float) -> None:
        """Adds a game: 1 won, ½ drawn, 0 lost."""
        self.games = _FADING * self.games + 1.0
        self.won = _FADING * self.won + result


@dataclass(slots=True, eq=False)
class Snapshot:
    """An earlier policy of a behavior."""

    weights: Weights
    step: int
    """Agent steps of the behavior when the snapshot was taken."""
    rating: float
    results: Results = field(default_factory=Results)


@dataclass(slots=True, eq=False)
class FixedOpponent:
    """An unchanging player: random actions, the scene's expert, or a checkpoint of any trainer type."""

    name: PlayerName
    checkpoint: Checkpoint | None
    """The checkpoint of its policy; None for ``random`` and ``expert``."""
    rating: float
    results: Results = field(default_factory=Results)

    @property
    def step(self) -> int | None:
        """Agent steps of its checkpoint; None without a checkpoint."""
        return None if self.checkpoint is None else self.checkpoint.step


class Opponents(Protocol):
    """The players of a behavior's sides, by the rules of self-play or as published to a worker."""

    def opponent(self, team: int) -> Snapshot | FixedOpponent | None:
        """The opponent that a side plays as; None for the newest policy, which the learning side always uses."""
        ...


class FixedActor:
    """A fixed opponent that acts for agents of any side in any simulator."""

    def __init__(self, actor: PolicyActor | None, spec: BehaviorSpec) -> None:
        """actor: None for the scene's expert."""
        self._actor = actor
        self._spec = spec

    def act(self, steps: BehaviorTick) -> ActionBatch:
        """Returns actions for waiting agents. Raises UserError without an expert, or if a group does not fit."""
        if self._actor is None:
            return expert_actions(steps, self._spec)
        return self._actor.act(steps.simulator, steps.team, steps.batch)


class OpponentPolicies:
    """The policies of a behavior's sides under self-play.

    Every side that plays as a snapshot has its own frozen policy, and loads the snapshot's weights at its first
    action. Its agents keep their memory through a swap, until their episodes end. A fixed opponent stores the memory
    of its agents itself. All random draws use one stream.
    """

    def __init__(self, opponents: Opponents, actor: Actor, compute: Compute, spec: BehaviorSpec) -> None:
        """actor: of the newest policy. spec: the simulator's observations and actions of the behavior."""
        self._opponents = opponents
        self._newest = actor
        self._spec = spec
        self._device = compute.device
        self._noise = random_stream(compute.seed + 3)
        self._frozen: dict[int, tuple[Snapshot, Actor]] = {}
        self._fixed: dict[tuple[int, int], tuple[FixedOpponent, FixedActor]] = {}
        """Fixed actors, by simulator and team id."""
        self._policies: dict[PlayerName, Policy] = {}
        """Policies of fixed opponents."""
        self._has_expert = False

    def actor(self, steps: BehaviorTick) -> Actor | FixedActor:
        """Returns the actor for a tick's side: the newest policy, a frozen one, or a fixed opponent."""
        opponent = self._opponents.opponent(steps.team)
        if opponent is None:
            return self._newest
        if isinstance(opponent, Snapshot):
            return self._frozen_policy(steps.team, opponent)
        before, actor = self._fixed.get((steps.simulator, steps.team), (None, None))
        if actor is None or before is not opponent:
            # A new actor with an empty memory, since episodes may have ended while another actor was used.
            actor = self.fixed_actor(opponent)
            self._fixed[steps.simulator, steps.team] = opponent, actor
        return actor

    def fixed_actor(self, opponent: FixedOpponent) -> FixedActor:
        """Returns the actor of a fixed opponent. Raises UserError if its sensors or actions differ."""
        if opponent.name.is_expert:
            self._has_expert = True
            return FixedActor(None, self._spec)
        if opponent.name not in self._policies:
            self._policies[opponent.name] = self._policy_of(opponent)
        return FixedActor(PolicyActor(self._policies[opponent.name], deterministic=False), self._spec)

    def check(self, steps: BehaviorTick) -> None:
        """Raises UserError or WireError if an opponent is a scene's expert without actions from the simulator.

        Called before any agent acts, so that only this simulator is affected.
        """
        if self._has_expert:
            expert_actions(steps, self._spec)

    def drop(self, simulator: int) -> None:
        """Forgets the memory of fixed opponents in a simulator that left or was reset."""
        self._fixed = {key: kept for key, kept in self._fixed.items() if key[0] != simulator}

    def _frozen_policy(self, team: int, snapshot: Snapshot) -> Actor:
        loaded, policy = self._frozen.get(team, (None, None))
        if policy is None:
            # Sides without an opponent need no policy.
            self._frozen = {
                other: kept for other, kept in self._frozen.items() if self._opponents.opponent(other)
            }
            policy = self._newest.frozen(self._noise)
        if loaded is not snapshot:
            policy.load_weights(snapshot.weights)
            self._frozen[team] = snapshot, policy
        return policy

    def _policy_of(self, opponent: FixedOpponent) -> Policy:
        checkpoint = opponent.checkpoint
        if checkpoint is None:
            policy = random_policy("random", self._spec)
        elif changed := spec_mismatch(checkpoint.spec, self._spec):
            raise UserError(
                f"self_play.opponents: '{opponent.name.text}' was trained for something else: {changed}"
            )
        else:
            policy = Policy(checkpoint, device=str(self._device))
        policy.draw_from(self._noise)
        return policy

    def reseed(self, seed: int) -> None:
        """Seeds the random stream of the opponents' actions."""
        self._noise.manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming a run: tensors and plain Python values only."""
        return {"acting": self._noise.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result. Raises KeyError if it is invalid."""
        restore_streams({"acting": self._noise}, state)


def expert_actions(steps: BehaviorTick, spec: BehaviorSpec) -> ActionBatch:
    """Returns the expert's actions for all waiting agents. Raises UserError if the simulator did not send them."""
    waiting = len(steps.batch) - steps.batch.num_terminal
    if not waiting:
        return ActionBatch.zeros(0, spec.action_spec)
    actions = parse_expert(steps.messages, steps.behavior_id, waiting, spec.action_spec)
    if actions is None:
        raise UserError(
            f"expert: the simulator does not say what an expert would do as '{steps.behavior_id}'; "
            "only bundled scenes do, with the argument --expert"
        )
    return actions
