"""Evaluation of frozen policies: every episode that starts is counted to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from trainer_service.errors import UserError
from trainer_service.learning.rollout.episode_scores import EndedEpisode, EpisodeLedger, Score
from trainer_service.running.callbacks import SimulatorStep
from trainer_service.running.collection.heterogeneous_groups import HeterogeneousGroups
from trainer_service.running.collection.policy_actor import PolicyActor
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.evaluation.loop import EpisodeLoop, EpisodeTally, Play, PlayStopped
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import spec_mismatch
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import MemberSpec
from unity_bridge.steps import ActionBatch

_logger = logging.getLogger(__name__)


def score(
    loop: EpisodeLoop,
    actors: PolicyActors,
    *,
    episodes: int,
    on_step: Callable[[str, SimulatorStep], None] | None = None,
    on_episode: Callable[[str, EndedEpisode], None] | None = None,
    keep_stopped: bool = False,
) -> dict[str, Score]:
    """Scores of actors, each over its number of episodes, by behavior name.

    Args:
        loop: with its simulators on their way.
        actors: act for all behaviors.
        episodes: of each behavior, counted per agent.
        on_step: called with each behavior's name and step before its answer is sent, as the step counts under the
            loop's limit; None calls nothing.
        on_episode: called with each behavior's name and counted episode when it ends; None calls nothing.
        keep_stopped: whether a play that a callback stops has the scores of the episodes that ended before.

    Raises:
        PlayStopped: a callback stopped the play, and ``keep_stopped`` is false.
        UserError: a simulator with a behavior that has no policy, or a different one: see ``policies_for``; or as
            from ``EpisodeLoop.play``.
        BridgeError: a simulator failed; its evaluation would not be one.
    """
    evaluation = _Evaluation(loop, actors, episodes, on_step=on_step, on_episode=on_episode)
    try:
        loop.play(evaluation)
    except PlayStopped:
        if not keep_stopped:
            raise
    for name, ledger in evaluation.ledgers.items():
        if ledger.complete and ledger.num_endless:
            _logger.warning(
                "'%s': %d episodes of groups did not end and are not counted.", name, ledger.num_endless
            )
    if missing := [f"'{name}'" for name in actors.policies if name not in evaluation.ledgers]:
        _logger.warning("The evaluation has no score of %s, of which no agent took part.", ", ".join(missing))
    return {name: ledger.score() for name, ledger in evaluation.ledgers.items()}


class _Evaluation(Play):
    """Actors that are scored."""

    def __init__(
        self,
        loop: EpisodeLoop,
        actors: PolicyActors,
        episodes: int,
        *,
        on_step: Callable[[str, SimulatorStep], None] | None,
        on_episode: Callable[[str, EndedEpisode], None] | None,
    ) -> None:
        self._policy_actors = actors
        super().__init__(actors)
        self.ledgers: dict[str, EpisodeLedger] = {}
        """By the policy's name, like the tallies."""
        self._tally_of: dict[str, EpisodeTally] = {}
        self._loop = loop
        self._episodes = episodes
        self._on_step = on_step
        self._on_episode = on_episode
        self._groups = HeterogeneousGroups(actors.groups)

    def step(self, tick: Tick) -> Mapping[str, ActionBatch]:
        """Acts, and counts the tick."""
        tick = self._groups.merge(tick)
        self._policy_actors.declare(tick)
        replies = self._policy_actors.act(tick)
        for behavior_id, batch in tick.steps.items():
            team = parse_behavior_id(behavior_id).team
            name = self._policy_actors.policy_of(behavior_id)
            if name not in self.ledgers:
                self._add_ledger(name)
            seen = self._tally_of[name].observe(tick.simulator, team, batch)
            if self._on_step is not None:
                actions = replies[behavior_id].rows(seen.waiting)
                self._on_step(name, SimulatorStep(tick.simulator, team, seen.batch, actions))
        return self._groups.split(tick, replies)

    def _add_ledger(self, name: str) -> None:
        on_end = None if self._on_episode is None else partial(self._on_episode, name)
        ledger = EpisodeLedger(self._episodes, self._policy_actors.members_of(name), on_end=on_end)
        self.ledgers[name] = ledger
        self._tally_of[name] = self._loop.tally(f"'{name}'", ledger)
        self.tallies.append(self._tally_of[name])


class PolicyActors:
    """Frozen policies that act for the behaviors of simulators."""

    def __init__(self, policies: Mapping[str, Policy], *, deterministic: bool) -> None:
        """policies: by behavior name."""
        self._deterministic = deterministic
        self.policies: dict[str, Policy] = {}
        self._actors: dict[str, PolicyActor] = {}
        self._policy_of: dict[str, str] = {}
        for name, policy in policies.items():
            self.add(name, policy)

    def add(self, name: str, policy: Policy) -> None:
        """Adds the policy of a behavior name."""
        self.policies[name] = policy
        self._actors[name] = PolicyActor(policy, self._deterministic)

    def declare(self, tick: Tick) -> None:
        """Takes in the behaviors that a tick declares. Raises UserError as ``policies_for``."""
        self._policy_of |= policies_for(tick, self.policies)

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The member behaviors of each policy of a heterogeneous group, by the group's name."""
        return {name: policy.members for name, policy in self.policies.items() if policy.members}

    def members_of(self, name: str) -> tuple[MemberSpec, ...]:
        """The members of a policy of a heterogeneous group, by the policy's name; empty for other policies."""
        return self.policies[name].spec.members

    def policy_of(self, behavior_id: str) -> str:
        """The name of the policy that acts for a behavior id."""
        return self._policy_of[parse_behavior_id(behavior_id).name]

    def act(self, tick: Tick) -> Mapping[str, ActionBatch]:
        """The actions for all agents that wait, by behavior id."""
        return {behavior_id: self.act_as(tick, behavior_id) for behavior_id in tick.steps}

    def act_as(self, tick: Tick, behavior_id: str) -> ActionBatch:
        """The actions for the agents of a behavior id that wait."""
        team = parse_behavior_id(behavior_id).team
        actor = self._actors[self.policy_of(behavior_id)]
        return actor.act(tick.simulator, team, tick.steps[behavior_id])

    def drop(self, simulator: int) -> None:
        """Forgets what policies remember of a simulator."""
        for actor in self._actors.values():
            actor.drop(simulator)


def policies_for(tick: Tick, policies: Mapping[str, Policy]) -> dict[str, str]:
    """The name of the policy for each behavior that a simulator declares, by the behavior's name.

    It is the policy of the behavior's name; or, where there is one policy for one behavior with the same sensors and
    actions, that one: a task may have another name elsewhere.

    Raises:
        UserError: there is none, or it is of a different behavior.
    """
    found: dict[str, str] = {}
    for behavior_id, spec in tick.new_specs.items():
        name, _ = parse_behavior_id(behavior_id)
        found[name] = name if name in policies else _only_one(name, tick, policies)
        if changed := spec_mismatch(policies[found[name]].spec, spec):
            raise UserError(f"behavior '{name}' is not what its policy was trained for: {changed}")
    return found


def _only_one(name: str, tick: Tick, policies: Mapping[str, Policy]) -> str:
    declared = {parse_behavior_id(behavior_id)[0] for behavior_id in tick.new_specs}
    fitting = [
        policy.behavior
        for policy in policies.values()
        if len(policies) == len(declared) == 1
        and all(spec_mismatch(policy.spec, spec) is None for spec in tick.new_specs.values())
    ]
    if not fitting:
        raise UserError(f"the run has no policy for behavior '{name}'; it has {', '.join(policies)}")
    _logger.info("The policy of '%s' plays '%s'.", fitting[0], name)
    return fitting[0]
