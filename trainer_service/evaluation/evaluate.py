"""Evaluation of frozen policies: every episode that starts is counted to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from trainer_service.callbacks import SimulatorStep
from trainer_service.collection.collectors import parse_behavior_id
from trainer_service.collection.policy_actor import PolicyActor
from trainer_service.collection.teams import Teams
from trainer_service.errors import UserError
from trainer_service.policy import Policy
from trainer_service.rollout.episode_scores import EpisodeLedger, Score
from trainer_service.runs.checkpoint import spec_mismatch
from unity_bridge.errors import SimulatorLost
from unity_bridge.server.bridge import Bridge, Departure, Tick
from unity_bridge.steps import ActionBatch

_POLL_S = 0.5
_logger = logging.getLogger(__name__)


def evaluate(
    bridge: Bridge,
    policies: Mapping[str, Policy],
    *,
    episodes: int,
    deterministic: bool,
    progress: Callable[[int, int], None] = lambda done, wanted: None,
    check_stop: Callable[[], None] = lambda: None,
    on_step: Callable[[str, SimulatorStep], None] | None = None,
) -> dict[str, Score]:
    """Scores of frozen policies, each over its number of episodes.

    Args:
        bridge: with its simulators on their way.
        policies: by behavior name.
        episodes: of each behavior, counted per agent.
        deterministic: likeliest actions instead of drawn ones.
        progress: told how many episodes of how many are done.
        check_stop: called at least twice a second; what it raises ends the evaluation.
        on_step: called with each behavior's name and step before its answer is sent; None for nobody.

    Raises:
        UserError: a simulator with a behavior that has no policy, or a different one: see ``policies_for``.
        BridgeError: a simulator failed; its evaluation would not be one.
    """
    ledgers: dict[str, EpisodeLedger] = {}
    actors = {name: PolicyActor(policy, deterministic) for name, policy in policies.items()}
    teams = Teams({name: policy.members for name, policy in policies.items() if policy.members})
    policy_of: dict[str, str] = {}
    done = -1
    while not ledgers or not all(ledger.complete for ledger in ledgers.values()):
        check_stop()
        for event in bridge.receive(_POLL_S):
            if isinstance(event, Departure):
                raise SimulatorLost(event.reason)
            tick = teams.merge(event)
            policy_of |= policies_for(tick, policies)
            replies: dict[str, ActionBatch] = {}
            for behavior_id, batch in tick.steps.items():
                name, team = parse_behavior_id(behavior_id)
                name = policy_of[name]
                if name not in ledgers:
                    ledgers[name] = EpisodeLedger(episodes, policies[name].spec.members)
                actions = replies[behavior_id] = actors[name].act(tick.simulator, team, batch)
                ledgers[name].observe(tick.simulator, team, batch)
                if on_step is not None:
                    on_step(name, SimulatorStep(tick.simulator, team, batch, actions))
            bridge.reply(tick.simulator, teams.split(tick, replies))
        ended = sum(ledger.num_ended for ledger in ledgers.values())
        if ended != done:
            done = ended
            progress(done, episodes * max(len(ledgers), 1))
    for name, ledger in ledgers.items():
        if ledger.num_endless:
            _logger.warning(
                "'%s': %d episodes of groups did not end and are not counted.", name, ledger.num_endless
            )
    return {name: ledger.score() for name, ledger in ledgers.items()}


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
