"""Rules that suggest settings for the features of an environment.

Each function takes features and returns choices with their reasons. No rule knows a task or depends on the machine, so
a suggestion is the same everywhere. The values come from the bundled configurations of environments with such features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainer_service.commands.suggest.features import BehaviorFeatures, EnvironmentFeatures

MANY_AGENTS = 12
"""Agents from which a gradient step for each of their decisions is enough for a learner from a replay buffer."""

HIDDEN_STATE = 0.25
"""The share of open reward variance from which on a policy gets memory."""

DENSE = 0.5
"""The share of decisions with a reward of their own from which on rewards count as dense."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting, and the reason for it."""

    key: str
    """Its path in the settings of a behavior, with dots."""

    value: Any
    reason: str


def suggest_settings(environment: EnvironmentFeatures) -> dict[str, list[Choice]]:
    """The choices for each behavior, and for each group of several behaviors, by name."""
    chosen: dict[str, list[Choice]] = {}
    members: set[str] = set()
    # All behaviors learn for as long as the one that needs the most steps of the environment.
    most = max(
        (choose_budget(each).value / max(1, each.agents) for each in environment.behaviors), default=0.0
    )
    for name, team in heterogeneous_groups(environment).items():
        members |= team.keys()
        chosen[name] = team_settings([each for each in environment.behaviors if each.name in team], most)
    mixed = {name for team in environment.teams for name in team}
    for behavior in environment.behaviors:
        if behavior.name not in members:
            chosen[behavior.name] = behavior_settings(behavior, most, mixed=behavior.name in mixed)
    return chosen


def heterogeneous_groups(environment: EnvironmentFeatures) -> dict[str, dict[str, int]]:
    """The groups of several behaviors that learn as one, with the agents of each behavior.

    Behaviors with a global state learn apart, each with a critic that sees this state. They may be opponents.
    """
    features = {behavior.name: behavior for behavior in environment.behaviors}
    return {
        "And".join(team): {name: features[name].group_size for name in team}
        for team in environment.teams
        if not any(features[name].has_global_state or features[name].team_ids != (0,) for name in team)
    }


def behavior_settings(behavior: BehaviorFeatures, least: float, *, mixed: bool) -> list[Choice]:
    """All choices for one behavior.

    least: the least steps of each agent. mixed: whether its groups have agents of other behaviors.
    """
    learner = choose_learner(behavior, mixed=mixed)
    budget = choose_budget(behavior)
    if budget.value < (steps := round(least * behavior.agents)):
        budget = Choice("max_steps", steps, "as many steps of the environment as other behaviors need")
    steps = budget.value
    hyperparameters = {"sac": sac, "crossq": crossq, "ppo": ppo, "mappo": mappo, "poca": poca}[learner.value]
    return [
        learner,
        *hyperparameters(behavior),
        *network(behavior, learner.value),
        *rewards(behavior, learner.value),
        budget,
        time_horizon(behavior),
        Choice("summary_freq", max(1000, steps // 40), "40 summaries"),
        *self_play(behavior, steps),
    ]


def team_settings(members: list[BehaviorFeatures], least: float) -> list[Choice]:
    """All choices for a group of several behaviors, by the features of the one with the most agents."""
    largest = max(members, key=lambda member: member.agents)
    agents = sum(member.agents for member in members)
    size = sum(member.group_size for member in members)
    whole = replace(largest, agents=agents, group_size=size, aliased=0.0)
    choices = [each for each in behavior_settings(whole, least, mixed=False) if each.key != "trainer_type"]
    reason = f"{len(members)} behaviors share a group: one critic sees all of their agents"
    kept = [each for each in choices if each.key != "hyperparameters.state"]
    return [Choice("trainer_type", "mappo", reason), *kept]


def choose_learner(behavior: BehaviorFeatures, *, mixed: bool) -> Choice:
    """The trainer type."""
    if len(behavior.team_ids) > 1:
        kind = "poca" if behavior.group_size > 1 else "ppo"
        return _learner(kind, f"{len(behavior.team_ids)} sides compete: self-play of a learner on policy")
    if mixed and behavior.has_global_state:
        return _learner("mappo", "agents of several behaviors, and a global state that a critic may see")
    if behavior.group_size > 1:
        if behavior.members_leave and behavior.shared_rewards > 0.99:
            return _learner("poca", "rewards are the group's, and agents leave before they are paid")
        return _learner(
            "mappo", f"{behavior.group_size} agents in a group: a central critic sees all of them"
        )
    if behavior.replaces_goals:
        return _learner("sac", "continuous actions and stated goals, which a replay buffer can replace")
    missing = f"; its goals cannot be replaced: {behavior.no_hindsight}" if behavior.states_goals else ""
    if is_smooth_control(behavior):
        # CrossQ has neither memory nor weights that a goal generates.
        kind = "sac" if behavior.states_goals or behavior.aliased > HIDDEN_STATE else "crossq"
        return _learner(
            kind, f"continuous actions, dense rewards, ends by truncation only: exact control{missing}"
        )
    kinds = "continuous" if behavior.is_continuous else "discrete"
    return _learner("ppo", f"{kinds} actions of single agents: the most robust learner{missing}")


def _learner(kind: str, reason: str) -> Choice:
    return Choice("trainer_type", kind, reason)


def is_smooth_control(behavior: BehaviorFeatures) -> bool:
    """Whether a learner from a replay buffer suits: continuous actions, dense rewards, and no task that can end."""
    never_ends = behavior.episodes > 0 and behavior.truncated == 1.0
    return behavior.is_continuous and never_ends and behavior.density > DENSE and not behavior.picture_size


def ppo(behavior: BehaviorFeatures) -> Iterator[Choice]:
    """Hyperparameters of PPO."""
    rare_failures = behavior.survival or len(behavior.team_ids) > 1
    buffer = rollout_size(behavior, least=8000 if rare_failures else 2048)
    batch = min(512, max(64, _power_of_two(buffer // 64)))
    yield _hyper("batch_size", batch, f"about {buffer // batch} minibatches an epoch")
    yield _hyper("buffer_size", buffer, f"{behavior.agents} agents act at once")
    if behavior.is_continuous:
        yield _hyper("learning_rate", 3e-4, "continuous actions: small steps")
        yield _hyper("num_epoch", 10, "continuous actions: many small steps from each rollout")
        yield _hyper("beta", 0.0, "the noise of continuous actions suffices to explore")
        if behavior.mean_reward < 0:
            yield _hyper(
                "log_std_init", 0.0, "random actions lose reward: explore widely before standing still pays"
            )
    else:
        yield _hyper("learning_rate", 5e-4, "discrete actions")
        yield _hyper("num_epoch", 4, "discrete actions")
        sparse = behavior.events < DENSE and not behavior.survival
        beta = 0.02 if sparse else 0.005
        yield _hyper(
            "beta", beta, "rewards are rare: explore more" if sparse else "discrete actions: explore"
        )
    yield _hyper("epsilon_schedule", "constant", "PPO's usual value")
    if behavior.picture_size:
        yield _hyper("shared_critic", True, "one convolutional network for policy and critic")


def mappo(behavior: BehaviorFeatures) -> Iterator[Choice]:
    """Hyperparameters of MAPPO."""
    yield from _group_rollouts(behavior, 3200, 4, "four")
    yield _hyper("num_epoch", 4, "few passes: the other agents change, too")
    yield _hyper("beta", 0.01, "agents have to explore together")
    yield _hyper("epsilon_schedule", "constant", "PPO's usual value")
    if behavior.group_size > 1 and behavior.shared_rewards < DENSE:
        yield _hyper("reward_mode", "group_sum", "agents are paid apart, and the group's return counts")
    if behavior.has_global_state:
        yield _hyper("state", "environment", "the simulator offers a global state to the critic")
        return
    yield _hyper("agent_ids", True, "agents with one policy can take different roles")
    if behavior.aliased <= HIDDEN_STATE:
        yield _hyper(
            "state", "own_and_joint", "the critic sees an agent's own observation apart from the others'"
        )
        yield _hyper("advantage_estimates", "every_epoch", "advantages follow the critic")
        yield _hyper("clip_value", False, "the critic may follow large changes")


def poca(behavior: BehaviorFeatures) -> Iterator[Choice]:
    """Hyperparameters of MA-POCA."""
    yield from _group_rollouts(behavior, 10240, 10, "ten")
    yield _hyper("beta", 0.01, "agents have to explore together")


def _group_rollouts(
    behavior: BehaviorFeatures, least: int, minibatches: int, in_words: str
) -> Iterator[Choice]:
    buffer = rollout_size(behavior, least=least)
    yield _hyper("batch_size", buffer // minibatches, f"{in_words} minibatches an epoch")
    yield _hyper("buffer_size", buffer, f"{behavior.agents} agents act at once")
    yield _hyper("learning_rate", 7e-4, "large minibatches")


def sac(behavior: BehaviorFeatures) -> Iterator[Choice]:
    """Hyperparameters of SAC."""
    yield _hyper("batch_size", 256, "SAC's usual value")
    yield _hyper("learning_rate", 3e-4, "SAC's usual value")
    yield _hyper("steps_per_update", 2.0, "a gradient step for two agent steps")
    yield from _replay(behavior)
    if behavior.replaces_goals:
        yield _hyper("replay.type", "hindsight", "goals that were missed teach how to reach others")


def crossq(behavior: BehaviorFeatures) -> Iterator[Choice]:
    """Hyperparameters of CrossQ."""
    if behavior.agents < MANY_AGENTS:
        yield _hyper("batch_size", 256, "CrossQ's usual value")
        yield _hyper("steps_per_update", 2.0, "a gradient step for two agent steps")
    else:
        yield _hyper("batch_size", 512, f"{behavior.agents} agents act at once: large minibatches")
        yield _hyper("policy_delay", 1, "few gradient steps: the policy learns at each")
        each = float(behavior.agents)
        yield _hyper("steps_per_update", each, "a gradient step for each decision of all agents")
    yield _hyper("learning_rate", 1e-3, "CrossQ's usual value")
    yield from _replay(behavior)


def _replay(behavior: BehaviorFeatures) -> Iterator[Choice]:
    start = min(10_000, max(1000, 5 * behavior.longest))
    yield _hyper("buffer_size", 300_000, "the newest steps, within a moderate memory")
    yield _hyper("buffer_init_steps", start, f"random steps first: episodes have up to {behavior.longest}")
    yield _hyper("learning_rate_schedule", "constant", "values keep changing")
    yield _hyper("init_entcoef", 1.0, "explore at first")
    if not behavior.picture_size:
        yield _hyper("save_replay_buffer", True, "a resumed run keeps its steps")


def network(behavior: BehaviorFeatures, learner: str) -> Iterator[Choice]:
    """The networks."""
    grouped = learner in ("mappo", "poca")
    if grouped:
        yield _net("layer_norm", learner == "mappo", "observations need no statistics")
    else:
        normalize, reason = needs_normalization(behavior)
        yield _net("normalize", normalize, reason)
    wide = behavior.vector_size > 128 or behavior.actions.continuous_size >= 6
    units = 256 if wide else 128
    yield _net(
        "hidden_units",
        units,
        f"{behavior.vector_size} numbers and pictures of {behavior.picture_size} pixels"
        if behavior.picture_size
        else f"{behavior.vector_size} numbers, {_actions_text(behavior)}",
    )
    if behavior.picture_size:
        yield _net("num_layers", 1, "the convolutions carry most of the network")
        yield _net(
            "vis_encode_type", encoder(behavior.picture_size), f"pictures of {behavior.picture_size} pixels"
        )
    if behavior.aliased > HIDDEN_STATE and not (behavior.has_global_state or behavior.replaces_goals):
        yield from _memory(behavior, grouped)


def encoder(side: int) -> str:
    """The encoder of pictures with this shortest side."""
    return "simple" if side >= 20 else "match3" if side >= 5 else "fully_connected"


def _memory(behavior: BehaviorFeatures, grouped: bool) -> Iterator[Choice]:
    share = (
        f"{100 * behavior.aliased:.0f} % of the rewards' variance depends on more than an observation shows"
    )
    yield _net("memory.type", "gru" if grouped else "lstm", f"memory, because {share}")
    yield _net("memory.memory_size", 64 if grouped else 128, "a small memory learns sooner")
    longest = min(64, max(8, behavior.longest))
    length = longest if grouped else min(16, longest)
    yield _net("memory.sequence_length", length, f"episodes have up to {behavior.longest} decisions")


def needs_normalization(behavior: BehaviorFeatures) -> tuple[bool, str]:
    """Whether vector observations are normalized, and why."""
    if behavior.is_binary:
        return False, "observations are 0 or 1"
    if not behavior.vector_size:
        return False, "there are no vector observations"
    if behavior.is_continuous:
        return True, "physical quantities have scales of their own"
    scale = behavior.observation_scale
    if 0.8 <= scale <= 1.2:
        return False, f"observations are of size {scale:.2g} already"
    return True, f"observations are of size {scale:.2g}"


def rewards(behavior: BehaviorFeatures, learner: str) -> Iterator[Choice]:
    """The discount, and what becomes of rewards."""
    gamma, reason = discount(behavior)
    yield _extrinsic("gamma", gamma, reason)
    scale = behavior.reward_scale / math.sqrt(max(behavior.density, 1e-6)) if not behavior.survival else 1.0
    if learner in ("sac", "crossq", "poca") and scale > 0 and not 0.3 < scale < 3:
        strength = 10.0 ** -round(math.log10(scale))
        yield _extrinsic("strength", strength, f"a reward is of size {scale:.2g}")
    dense = behavior.density > DENSE or behavior.survival
    if learner == "ppo" and (dense or scale > 10):
        yield _extrinsic("normalize_rewards", True, "rewards add up to returns of unknown size")
    if learner == "ppo" and len(behavior.team_ids) == 1 and behavior.events < 0.02 and not behavior.survival:
        reason = "random actions were hardly ever rewarded: seek what is new"
        yield Choice("reward_signals.curiosity.strength", 0.3, reason)
        yield Choice("reward_signals.curiosity.normalize_rewards", True, "the strength alone weighs it")
        yield Choice("reward_signals.curiosity.network_settings.hidden_units", 64, "a small model suffices")


def discount(behavior: BehaviorFeatures) -> tuple[float, str]:
    """The discount per decision, and why."""
    if behavior.survival:
        return 0.99, "a longer life earns more, so episodes get longer"
    if not behavior.episodes:
        return 0.99, "no episode ended: how long they are is unknown"
    gamma = min(0.99, max(0.9, 1 - 1.25 / behavior.longest))
    return round(gamma, 3), f"episodes have up to {behavior.longest} decisions"


def choose_budget(behavior: BehaviorFeatures) -> Choice:
    """The agent steps after which training ends."""
    if behavior.picture_size:
        return Choice("max_steps", 1_000_000, f"pictures of {behavior.picture_size} pixels")
    if len(behavior.team_ids) > 1:
        return Choice("max_steps", 1_000_000, "opponents improve, too")
    if behavior.group_size > 1:
        steps = 1_000_000 * behavior.group_size
        return Choice("max_steps", steps, f"a million for each of {behavior.group_size} agents")
    if is_smooth_control(behavior):
        steps = 300_000 if behavior.actions.continuous_size > 2 else 100_000
        return Choice("max_steps", steps, "learning from a replay buffer takes few steps")
    if behavior.actions.continuous_size > 2 or (behavior.density > DENSE and behavior.longest > 64):
        return Choice("max_steps", 1_000_000, "control over long episodes")
    return Choice("max_steps", 300_000, "few actions")


def time_horizon(behavior: BehaviorFeatures) -> Choice:
    """The steps after which a trajectory is cut."""
    if behavior.replaces_goals:
        return Choice("time_horizon", max(1000, behavior.longest), "whole episodes: their goals are replaced")
    if behavior.survival:
        steps = min(1000, max(128, 12_000 // behavior.agents))
        return Choice("time_horizon", steps, "failures get rare: long trajectories still have some")
    if behavior.episodes and behavior.longest <= 256:
        return Choice("time_horizon", max(16, behavior.longest), "whole episodes")
    return Choice("time_horizon", 128, "a part of a long episode")


def rollout_size(behavior: BehaviorFeatures, *, least: int) -> int:
    """The agent steps of one rollout: a trajectory of each agent, and a minimum number of steps."""
    horizon: int = (
        time_horizon(behavior).value if behavior.survival else min(128, time_horizon(behavior).value)
    )
    once = max(1, behavior.agents) * horizon
    return once * max(1, math.ceil(least / once)) if once < 4 * least else once


def self_play(behavior: BehaviorFeatures, steps: int) -> Iterator[Choice]:
    """Self-play, where several sides share a behavior."""
    if len(behavior.team_ids) > 1:
        yield Choice("self_play.save_steps", steps // 40, "40 snapshots")
        yield Choice("self_play.team_change", steps // 10, "ten turns of learning")
        yield Choice("self_play.swap_steps", steps // 100, "opponents change often")
        yield Choice("self_play.window", 10, "opponents from the last quarter of the run")


def _actions_text(behavior: BehaviorFeatures) -> str:
    actions = behavior.actions
    parts = [f"{actions.continuous_size} continuous actions"] if actions.continuous_size else []
    if actions.discrete_branches:
        parts.append(f"{actions.mask_size} choices")
    return " and ".join(parts)


def _hyper(key: str, value: Any, reason: str) -> Choice:
    return Choice(f"hyperparameters.{key}", value, reason)


def _net(key: str, value: Any, reason: str) -> Choice:
    return Choice(f"network_settings.{key}", value, reason)


def _extrinsic(key: str, value: Any, reason: str) -> Choice:
    return Choice(f"reward_signals.extrinsic.{key}", value, reason)


def _power_of_two(number: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << max(0, number.bit_length() - 1)
