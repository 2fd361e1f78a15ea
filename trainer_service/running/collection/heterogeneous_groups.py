"""Heterogeneous groups in a process's simulators: merges ticks of several behaviors, and splits their actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from trainer_service.errors import UserError
from trainer_service.learning.rollout.agent_indices import too_many_of_member
from trainer_service.learning.rollout.agent_padding import AgentPadding, padded_spec
from trainer_service.running.collection.router import BehaviorId, largest_group, parse_behavior_id
from unity_bridge.errors import WireError
from unity_bridge.names import nearest_choice
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.untrusted_text import quoted

_MOST_NAMED = 8
"""The most behaviors of a simulator that a message names."""


@dataclass(frozen=True, slots=True, eq=False)
class _DeclaredGroup:
    """The members of a group in one simulator, with one team id."""

    behavior_ids: tuple[str, ...]
    """The simulator's behavior ids of the members, in their order."""

    padding: AgentPadding


class HeterogeneousGroups:
    """The heterogeneous groups of a configuration, in the simulators of this process.

    After merging, a group is one behavior. Its id is the group's name with the team id of the members.
    """

    def __init__(self, groups: Mapping[str, Collection[str]]) -> None:
        """groups: the behaviors of each group, in the order of their agent indices, by the group's name."""
        self._members = {name: tuple(members) for name, members in groups.items()}
        self._group_of = {member: name for name, members in self._members.items() for member in members}
        self._declared: dict[int, dict[str, _DeclaredGroup]] = {}
        """Declared groups, by simulator and group id."""
        self._group_ids: dict[int, dict[str, str]] = {}
        """The group id of each behavior id, by simulator."""

    def __bool__(self) -> bool:
        return bool(self._members)

    def merge(self, tick: Tick) -> Tick:
        """Returns a tick with one behavior in place of each group's members.

        Raises:
            UserError: One message does not declare all members, or a behavior has the name of a group.
            WireError: Two members have the same agent id.
        """
        if not self._members:
            return tick
        new_specs = self._declare(tick) if tick.new_specs else tick.new_specs
        group_ids = self._group_ids.get(tick.simulator)
        if not group_ids:
            return replace(tick, new_specs=new_specs)
        steps = {name: batch for name, batch in tick.steps.items() if name not in group_ids}
        for group_id in dict.fromkeys(group_ids[name] for name in tick.steps if name in group_ids):
            group = self._declared[tick.simulator][group_id]
            try:
                steps[group_id] = group.padding.merge([tick.steps.get(name) for name in group.behavior_ids])
            except ValueError as error:
                raise WireError(f"team {quoted(group_id)}: {error}") from None
        replaced: dict[str, int] = {}
        for name, count in tick.replaced.items():
            group_id = group_ids.get(name, name)
            replaced[group_id] = replaced.get(group_id, 0) + count
        return replace(tick, new_specs=new_specs, steps=steps, replaced=replaced)

    def split(self, tick: Tick, actions: Mapping[str, ActionBatch]) -> Mapping[str, ActionBatch]:
        """Returns the actions for a tick that ``merge`` returned, by the simulator's own behavior ids."""
        groups = self._declared.get(tick.simulator)
        if not groups:
            return actions
        replies: dict[str, ActionBatch] = {}
        for behavior_id, batch in actions.items():
            group = groups.get(behavior_id)
            if group is None:
                replies[behavior_id] = batch
                continue
            step = tick.steps[behavior_id]
            assert step.members is not None
            parts = group.padding.split(batch, step.members[step.num_terminal :])
            replies |= {name: part for name, part in zip(group.behavior_ids, parts, strict=True) if len(part)}
        return replies

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left."""
        self._declared.pop(simulator, None)
        self._group_ids.pop(simulator, None)

    def _declare(self, tick: Tick) -> dict[str, BehaviorSpec]:
        """Returns the behaviors that a tick declares, with a padded spec for each group."""
        specs: dict[str, BehaviorSpec] = {}
        found: dict[BehaviorId, dict[str, str]] = {}
        """Behavior ids of the declared members, by group and team id."""
        for behavior_id, spec in tick.new_specs.items():
            name, team = parse_behavior_id(behavior_id)
            if name in self._members:
                members = ", ".join(f"'{member}'" for member in self._members[name])
                raise UserError(f"behavior '{name}': the configuration has a team of this name, of {members}")
            if name not in self._group_of:
                specs[behavior_id] = spec
                continue
            ids = found.setdefault(BehaviorId(self._group_of[name], team), {})
            if name in ids:
                raise UserError(
                    f"behavior id {quoted(behavior_id)}: expected one id for each name and team, "
                    f"{quoted(ids[name])} means the same"
                )
            ids[name] = behavior_id
        for group, ids in found.items():
            names = self._members[group.name]
            self._require_all(group, names, ids, tick)
            padded = padded_spec([self._member(name, ids[name], tick) for name in names])
            group_id = f"{group.name}?team={group.team}"
            specs[group_id] = padded
            declared = _DeclaredGroup(tuple(ids[name] for name in names), AgentPadding(padded))
            self._declared.setdefault(tick.simulator, {})[group_id] = declared
            self._group_ids.setdefault(tick.simulator, {}).update(dict.fromkeys(ids.values(), group_id))
        return specs

    @staticmethod
    def _member(name: str, behavior_id: str, tick: Tick) -> MemberSpec:
        spec = tick.new_specs[behavior_id]
        agents = largest_group(tick.steps.get(behavior_id))
        return MemberSpec(name, spec.observation_specs, spec.action_spec, agents)

    @staticmethod
    def _require_all(group: BehaviorId, members: Sequence[str], ids: Mapping[str, str], tick: Tick) -> None:
        if missing := [member for member in members if member not in ids]:
            declared = list(tick.new_specs)[:_MOST_NAMED]
            near = nearest_choice(missing[0], {each.partition("?")[0] for each in declared} - {*members})
            raise UserError(
                f"team '{group.name}' (team={group.team}): expected one message to declare all of "
                f"{', '.join(f'{member!r}' for member in members)}, got {', '.join(map(quoted, declared))} without "
                f"{', '.join(f'{member!r}' for member in missing)}"
                + (f" (is {quoted(near)} meant?)" if near else "")
            )


def with_agent_counts(
    group: str, spec: BehaviorSpec, configured: Mapping[str, int | None], trained: BehaviorSpec | None
) -> BehaviorSpec:
    """Returns a group's spec with agent counts from the configuration, the checkpoint or the declaration.

    The first of these that has a member's count is used. configured: the most agents in a group by member, None if not
    configured. trained: the spec of the checkpoint; None without one. Raises UserError if a simulator declared more.
    """
    known = {member.behavior: member.num_agents for member in trained.members} if trained else {}
    members = [
        replace(
            member,
            num_agents=configured.get(member.behavior) or known.get(member.behavior) or member.num_agents,
        )
        for member in spec.members
    ]
    for member, declared in zip(members, spec.members, strict=True):
        if declared.num_agents > member.num_agents:
            raise UserError(f"team '{group}': {too_many_of_member(member, declared.num_agents)}")
    return replace(spec, members=tuple(members))
