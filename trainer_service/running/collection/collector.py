"""Collection of one behavior's experience: from observations to actions and trajectories."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute, Learner, LearnerFactory, make_learner
from trainer_service.learning.algorithms.common.actor import Actor, ActRequest
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.learning.networks.threads import Threads
from trainer_service.learning.rollout.agent_indices import (
    AgentIndexAllocator,
    GroupMembership,
    reported_agent_indices,
)
from trainer_service.learning.rollout.agents import MAX_AGENTS, Keys, TooManyAgents
from trainer_service.learning.rollout.assembler import Decisions, Episodes, TrajectoryAssembler
from trainer_service.learning.rollout.group_returns import GroupReturns, GroupTick, game_results
from trainer_service.learning.rollout.observation_selector import ObservationSelector
from trainer_service.running.callbacks import EndedEpisodes
from trainer_service.running.collection.opponents import FixedActor, OpponentPolicies, Opponents
from trainer_service.running.collection.records import BehaviorTick, SampleBatch
from unity_bridge.arrays import Rows
from unity_bridge.errors import WireError
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch, join_observations
from unity_bridge.throttled_logger import ThrottledLogger

_logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """Agents that wait for the next ``act``."""

    rows: Rows
    observations: tuple[Observation, ...]
    allowed_actions: NDArray[np.bool_]


class Collector:
    """The rollout of one behavior: its agents in all simulators, their steps, and the waiting agents."""

    def __init__(
        self,
        name: str,
        settings: TrainerSettings,
        selector: ObservationSelector,
        actor: Actor,
        horizon: int,
        opponents: OpponentPolicies | None = None,
        *,
        first_agent: int = 0,
    ) -> None:
        """
        Args:
            name: name of the behavior.
            settings: settings of the behavior.
            selector: selects the sensors that the actor observes.
            actor: acts with the newest policy.
            horizon: steps after which a trajectory is cut.
            opponents: the policies of teams under self-play; None if the actor acts for all.
            first_agent: the smallest number of an agent, see ``Trajectories.agents``.
        """
        self._name = name
        self.selector = selector
        self.actor = actor
        self.opponents = opponents
        self.threads: Threads | None = None
        """Torch's threads for its decisions; None leaves them unchanged."""
        self._deterministic = settings.acts_greedily
        self._groups = GroupReturns()
        by_group = settings.hyperparameters.learns_by_group
        members = selector.spec.members
        self._agent_indices = AgentIndexAllocator(members) if by_group or members else None
        self._observes_all = self._agent_indices is None and selector.spec == selector.inputs
        """Whether the learner observes exactly the simulator's sensors, and needs nothing else."""
        self._max_group_size = settings.hyperparameters.max_group_size
        self._assembler = TrajectoryAssembler(
            selector.spec,
            horizon,
            actor.memory_size,
            by_group=by_group,
            first_agent=first_agent,
        )
        self._waiting: list[tuple[BehaviorTick, _Waiting]] = []
        """Waiting agents, with the tick of their request."""
        self._throttled = ThrottledLogger(_logger)

    def observe(self, steps: BehaviorTick, replaced_values: int = 0) -> SampleBatch:
        """Adds a tick. Rewards and ends belong to the previous actions; the other agents wait for ``act``.

        replaced_values: count of the tick's unusable numbers, which were replaced.

        Raises:
            UserError: The tick does not fit the configuration.
            WireError: The simulator has too many agents.
        """
        if len(steps.batch) > 2 * MAX_AGENTS:
            # Checked first, since each agent takes memory and time.
            raise WireError(
                f"behavior '{self._name}': expected at most {MAX_AGENTS} agents in one simulator, got a message of "
                f"{len(steps.batch)} rows"
            )
        if self.opponents is not None:
            self.opponents.check(steps)
        if not self._waiting:
            self._assembler.tidy()  # rows may move: no other object stores them
        batch, membership = (steps.batch, None) if self._observes_all else self._select_observations(steps)
        groups = self._groups.observe(steps.simulator, steps.team, steps.batch)
        try:
            observed = self._assembler.observe(steps.simulator, steps.team, batch, membership, groups)
        except TooManyAgents as error:
            raise WireError(f"behavior '{self._name}': {error}") from None
        if observed.vanished is not None:
            self._forget_vanished(steps, observed.vanished)
        first = batch.num_terminal
        waiting = _Waiting(
            observed.waiting,
            tuple(sensor[first:] for sensor in batch.observations),
            batch.allowed_actions[first:],
        )
        self._waiting.append((steps, waiting))
        transitions, trajectories = observed.transitions, observed.trajectories
        if observed.episodes is None and not len(groups.returns):
            return SampleBatch(steps.team, transitions, trajectories, None, None, replaced_values)
        episodes, ended = _ended_episodes(steps, observed.episodes, groups, membership)
        results = None
        if self.opponents is not None:
            results = game_results(steps.batch, steps.team, ended, groups.keys)
        return SampleBatch(steps.team, transitions, trajectories, episodes, results, replaced_values)

    def act(self) -> list[ActionBatch]:
        """Computes the actions of all waiting agents, with one forward pass for each policy.

        Returns one batch per observed tick, in order.
        """
        opponents = self.opponents
        waiting, self._waiting = self._waiting, []
        if opponents is None:
            return self._sample_actions(self.actor, [part for _, part in waiting])
        actors = [opponents.actor(steps) for steps, _ in waiting]
        decided: dict[int, ActionBatch] = {}
        for actor in dict.fromkeys(actors):
            at = [i for i, each in enumerate(actors) if each is actor]
            if isinstance(actor, FixedActor):
                decided |= {i: self._act_as(actor, *waiting[i]) for i in at}
            else:
                decided |= zip(at, self._sample_actions(actor, [waiting[i][1] for i in at]), strict=True)
        return [decided[i] for i in range(len(waiting))]

    def _act_as(self, actor: FixedActor, steps: BehaviorTick, waiting: _Waiting) -> ActionBatch:
        """Returns a fixed opponent's actions. Stores blank decisions, which nothing learns from, to track episodes."""
        rows, actions = len(waiting.rows), self.selector.spec.action_spec
        blank = Decisions(
            np.zeros((rows, actions.continuous_size), np.float32),
            np.zeros((rows, actions.discrete_size), np.int64),
            np.zeros(rows, np.float32),
            self._assembler.memories(waiting.rows),
        )
        self._assembler.acted(waiting.rows, waiting.observations, waiting.allowed_actions, blank)
        return actor.act(steps)

    def _sample_actions(self, actor: Actor, waiting: list[_Waiting]) -> list[ActionBatch]:
        together = waiting[0] if len(waiting) == 1 else _concatenated(waiting)
        if len(together.rows) == 0:
            return [ActionBatch.zeros(0, self.selector.spec.action_spec) for _ in waiting]
        threads = nullcontext() if self.threads is None else self.threads.for_decision(len(together.rows))
        with threads:
            decisions = actor.act(
                ActRequest(
                    together.observations,
                    together.allowed_actions,
                    self._assembler.memories(together.rows),
                    self._deterministic,
                )
            )
        self._assembler.acted(together.rows, together.observations, together.allowed_actions, decisions)
        continuous = actor.env_actions(decisions)
        discrete = decisions.discrete_actions.astype(np.int32)
        if len(waiting) == 1:
            return [ActionBatch(continuous, discrete)]
        cuts = np.cumsum([len(part.rows) for part in waiting])[:-1]
        return [
            ActionBatch(*part)
            for part in zip(np.split(continuous, cuts), np.split(discrete, cuts), strict=True)
        ]

    def drop(self, simulator: int) -> None:
        """Forgets the unfinished segments and waiting agents of a simulator that left or was reset."""
        self._assembler.drop(simulator)
        if self._agent_indices is not None:
            self._agent_indices.drop(simulator)
        self._groups.drop(simulator)
        if self.opponents is not None:
            self.opponents.drop(simulator)
        self._waiting = [each for each in self._waiting if each[0].simulator != simulator]

    def _forget_vanished(self, steps: BehaviorTick, vanished: Keys) -> None:
        """Forgets vanished agents. Their episodes did not end, so their returns are not counted."""
        self._groups.forget(steps.simulator, vanished)
        if self._agent_indices is not None:
            self._agent_indices.forget(steps.simulator, vanished)
        self._throttled.log(
            "vanished",
            f"'{self._name}': simulator {steps.simulator} has not mentioned {len(vanished)} agents for long, nor said "
            "that their episodes end; what they did is learned from, their returns are not counted",
        )

    def _select_observations(self, steps: BehaviorTick) -> tuple[StepBatch, GroupMembership | None]:
        """Returns a tick with the learner's sensors, and each row's group and index if they are used."""
        if self._agent_indices is None:
            return self.selector.batch(steps.batch, None), None
        try:
            membership = self._agent_indices.assign(steps.simulator, steps.team, steps.batch)
        except ValueError as error:
            raise UserError(f"team '{self._name}': {error}") from None
        largest = int(membership.agent_indices.max(initial=-1)) + 1
        if self._max_group_size is not None and largest > self._max_group_size:
            raise UserError(
                f"behavior '{self._name}': got a group of at least {largest} agents, "
                f"expected at most {self._max_group_size}: "
                "set hyperparameters.group_size"
            )
        return self.selector.batch(steps.batch, membership.agent_indices), membership


def learner_and_collector(
    name: str,
    spec: BehaviorSpec,
    settings: TrainerSettings,
    compute: Compute,
    opponents: Opponents | None,
    *,
    make_learner: LearnerFactory = make_learner,
    first_agent: int = 0,
) -> tuple[Learner, Collector]:
    """Makes the two halves of a behavior: the learner, and the collector that uses the learner's actor.

    Raises ValueError or PluginError if the settings do not support the behavior's observations or actions.

    opponents: the players of its sides under self-play; None without self-play.
    """
    selector = selector_for(spec, settings)
    learner = make_learner(selector.spec, settings, compute)
    policies = None if opponents is None else OpponentPolicies(opponents, learner.actor, compute, spec)
    return learner, Collector(
        name, settings, selector, learner.actor, learner.horizon, policies, first_agent=first_agent
    )


def _ended_episodes(
    steps: BehaviorTick, episodes: Episodes | None, groups: GroupTick, membership: GroupMembership | None
) -> tuple[EndedEpisodes, Rows]:
    """Returns the ended episodes of a tick for reports, and the rows in which agents' episodes ended."""
    returns, lengths, ended = np.empty(0), np.empty(0, np.int64), np.empty(0, np.intp)
    if episodes is not None:
        returns, lengths, ended = episodes.returns, episodes.lengths, episodes.rows
    agent_indices = reported_agent_indices(steps.batch, membership)[ended]
    in_group = steps.batch.group_ids[ended] != 0
    return EndedEpisodes(returns, lengths, agent_indices, groups.returns, in_group), ended


def _concatenated(parts: Sequence[_Waiting]) -> _Waiting:
    return _Waiting(
        np.concatenate([part.rows for part in parts]),
        tuple(
            join_observations(sensors) for sensors in zip(*(part.observations for part in parts), strict=True)
        ),
        np.concatenate([part.allowed_actions for part in parts]),
    )
