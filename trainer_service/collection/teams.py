"""Teams of a process's simulators: the ticks of several behaviors as those of one, and its actions as theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from trainer_service.collection.collectors import TeamName, largest_group, parse_behavior_id
from trainer_service.config.section import nearest_choice
from trainer_service.errors import UserError
from trainer_service.rollout.agent_indices import too_many_of_member
from trainer_service.rollout.agent_padding import AgentPadding, padded_spec
from unity_bridge.errors import WireError
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.untrusted_text import quoted

_MOST_NAMED = 8
"""Behaviors of a simulator that a message repeats."""


@dataclass(frozen=True, slots=True, eq=False)
class _DeclaredTeam:
    """A team as one simulator has it, under one team number."""

    behavior_ids: tuple[str, ...]
    """The simulator's ids of the members, in their order."""

    padding: AgentPadding


class Teams:
    """The teams of a configuration, in the simulators of this process.

    To everything behind it a team is one behavior, whose id is the team's name with the team number of the members.
    """

    def __init__(self, teams: Mapping[str, Collection[str]]) -> None:
        """teams: the behaviors of each team in the order of their agents' indices, by the team's name."""
        self._teams = {name: tuple(members) for name, members in teams.items()}
        self._team_of = {member: name for name, members in self._teams.items() for member in members}
        self._declared: dict[int, dict[str, _DeclaredTeam]] = {}
        """By simulator and id of the team."""
        self._team_ids: dict[int, dict[str, str]] = {}
        """By simulator: the id of the team of each behavior id."""

    def __bool__(self) -> bool:
        return bool(self._teams)

    def merge(self, tick: Tick) -> Tick:
        """A tick with one behavior in place of each team's members.

        Raises:
            UserError: members that are not declared by one message, or a behavior with the name of a team.
            WireError: an agent that two members have.
        """
        if not self._teams:
            return tick
        new_specs = self._declare(tick) if tick.new_specs else tick.new_specs
        team_ids = self._team_ids.get(tick.simulator)
        if not team_ids:
            return replace(tick, new_specs=new_specs)
        steps = {name: batch for name, batch in tick.steps.items() if name not in team_ids}
        for team_id in dict.fromkeys(team_ids[name] for name in tick.steps if name in team_ids):
            team = self._declared[tick.simulator][team_id]
            try:
                steps[team_id] = team.padding.merge([tick.steps.get(name) for name in team.behavior_ids])
            except ValueError as error:
                raise WireError(f"team {quoted(team_id)}: {error}") from None
        replaced: dict[str, int] = {}
        for name, count in tick.replaced.items():
            team_id = team_ids.get(name, name)
            replaced[team_id] = replaced.get(team_id, 0) + count
        return replace(tick, new_specs=new_specs, steps=steps, replaced=replaced)

    def split(self, tick: Tick, actions: Mapping[str, ActionBatch]) -> Mapping[str, ActionBatch]:
        """The actions that a simulator gets for a tick which ``merge`` returned: by its own behavior ids."""
        teams = self._declared.get(tick.simulator)
        if not teams:
            return actions
        replies: dict[str, ActionBatch] = {}
        for behavior_id, batch in actions.items():
            team = teams.get(behavior_id)
            if team is None:
                replies[behavior_id] = batch
                continue
            step = tick.steps[behavior_id]
            assert step.members is not None
            parts = team.padding.split(batch, step.members[step.num_terminal :])
            replies |= {name: part for name, part in zip(team.behavior_ids, parts, strict=True) if len(part)}
        return replies

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that is gone."""
        self._declared.pop(simulator, None)
        self._team_ids.pop(simulator, None)

    def _declare(self, tick: Tick) -> dict[str, BehaviorSpec]:
        """The behaviors that a tick declares, with a padded one for each team."""
        specs: dict[str, BehaviorSpec] = {}
        found: dict[TeamName, dict[str, str]] = {}
        """By team and team number: the ids of the members that are declared."""
        for behavior_id, spec in tick.new_specs.items():
            name, number = parse_behavior_id(behavior_id)
            if name in self._teams:
                members = ", ".join(f"'{member}'" for member in self._teams[name])
                raise UserError(f"behavior '{name}': the configuration has a team of this name, of {members}")
            if name not in self._team_of:
                specs[behavior_id] = spec
                continue
            ids = found.setdefault(TeamName(self._team_of[name], number), {})
            if name in ids:
                raise UserError(
                    f"behavior id {quoted(behavior_id)}: expected one id for each name and team, "
                    f"{quoted(ids[name])} means the same"
                )
            ids[name] = behavior_id
        for team, ids in found.items():
            names = self._teams[team.name]
            self._require_all(team, names, ids, tick)
            padded = padded_spec([self._member(name, ids[name], tick) for name in names])
            team_id = f"{team.name}?team={team.team}"
            specs[team_id] = padded
            declared = _DeclaredTeam(tuple(ids[name] for name in names), AgentPadding(padded))
            self._declared.setdefault(tick.simulator, {})[team_id] = declared
            self._team_ids.setdefault(tick.simulator, {}).update(dict.fromkeys(ids.values(), team_id))
        return specs

    @staticmethod
    def _member(name: str, behavior_id: str, tick: Tick) -> MemberSpec:
        spec = tick.new_specs[behavior_id]
        agents = largest_group(tick.steps.get(behavior_id))
        return MemberSpec(name, spec.observation_specs, spec.action_spec, agents)

    @staticmethod
    def _require_all(team: TeamName, members: Sequence[str], ids: Mapping[str, str], tick: Tick) -> None:
        if missing := [member for member in members if member not in ids]:
            declared = list(tick.new_specs)[:_MOST_NAMED]
            near = nearest_choice(missing[0], {each.partition("?")[0] for each in declared} - {*members})
            raise UserError(
                f"team '{team.name}' (team={team.team}): expected one message to declare all of "
                f"{', '.join(f'{member!r}' for member in members)}, got {', '.join(map(quoted, declared))} without "
                f"{', '.join(f'{member!r}' for member in missing)}"
                + (f" (is {quoted(near)} meant?)" if near else "")
            )


def with_agent_counts(
    team: str, spec: BehaviorSpec, configured: Mapping[str, int | None], trained: BehaviorSpec | None
) -> BehaviorSpec:
    """A team's spec with as many agents of each member as the configuration says, or a checkpoint, or the message.

    configured: the most agents in a group by member; None where it does not say. trained: what a checkpoint was made
    for; None without one. Raises UserError where more came.
    """
    known = {member.behavior: member.num_agents for member in trained.members} if trained else {}
    members = [
        replace(
            member,
            num_agents=configured.get(member.behavior) or known.get(member.behavior) or member.num_agents,
        )
        for member in spec.members
    ]
    for member, seen in zip(members, spec.members, strict=True):
        if seen.num_agents > member.num_agents:
            raise UserError(f"team '{team}': {too_many_of_member(member, seen.num_agents)}")
    return replace(spec, members=tuple(members))
