"""Heterogeneous groups: several behaviors that learn as one, under ``teams`` in a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from trainer_service.config.hyperparameters.common import GroupSettings
from trainer_service.config.rewards import GAILSettings
from trainer_service.config.section import Location, Remark, names_or_mapping, names_or_mapping_schema
from trainer_service.config.trainer import TrainerSettings
from trainer_service.config.values import PositiveCount, problem, shown
from unity_bridge.names import did_you_mean, name_problem


def _as_behavior_name(name: str) -> str:
    if reason := name_problem(name):
        raise problem(f"behavior name {shown(name)} {reason}")
    return name


BehaviorName = Annotated[str, AfterValidator(_as_behavior_name)]


def _as_members(value: Any) -> Any:
    """Reads a list of behaviors, or a mapping from behaviors to their numbers of agents in a group."""
    what = "a list of behaviors, or a mapping from behaviors to numbers of agents"
    members = names_or_mapping(value, what, "the name of a behavior", None)
    if len(members) < 2:
        raise problem(f"expected at least two behaviors, got {_listed(members)}")
    return members


Members = Annotated[
    dict[BehaviorName, PositiveCount | None],
    BeforeValidator(_as_members),
    WithJsonSchema(names_or_mapping_schema(2, {"type": ["integer", "null"], "minimum": 1})),
]
"""The behaviors of a heterogeneous group in the order of their agents' indices, with the most agents of each. None: the
simulator's first message decides."""

Groups = Mapping[str, Mapping[str, int | None]]
"""The members of each heterogeneous group, by its name."""


def group_problems(
    groups: Groups, behaviors: Mapping[str, TrainerSettings], default_settings: TrainerSettings | None
) -> Iterator[Remark]:
    """Yields mistakes in the groups themselves and in the settings that a group learns with."""
    group_of: dict[str, str] = {}
    for group, members in groups.items():
        for member in members:
            if member in groups:
                yield Remark(
                    ("teams", group), f"'{member}' is the name of a team, and cannot be a member of one"
                )
            if member in group_of:
                text = f"'{member}' is a member of '{group_of[member]}' already, expected it in one team"
                yield Remark(("teams", group), text)
            elif member in behaviors and member not in groups:
                text = (
                    f"expected no settings for '{member}', which learns as a part of team '{group}': those of the team "
                    f"stand under 'behaviors.{group}'"
                )
                yield Remark(("behaviors", member), text)
            group_of.setdefault(member, group)
        settings = behaviors.get(group, default_settings)
        if settings is None:
            hint = did_you_mean(group, behaviors, "is '{}' meant?")
            where = f"an entry for '{group}' under 'behaviors', or set 'default_settings'"
            text = f"the team has no settings{hint}: add {where}"
            yield Remark(("teams", group), text)
        else:
            yield from _unfit_settings(group, members, settings, is_listed=group in behaviors)


def _unfit_settings(
    group: str, members: Mapping[str, int | None], settings: TrainerSettings, *, is_listed: bool
) -> Iterator[Remark]:
    """Yields settings that a group cannot learn with. is_listed: they stand under its name, not as the default."""

    def at(*keys: str) -> Location:
        return ("behaviors", group, *keys) if is_listed else ("teams", group)

    hyper = settings.hyperparameters
    where = "" if is_listed else " by default_settings"
    if hyper.learns and not hyper.learns_by_group:
        text = (
            f"expected a trainer type for groups, such as mappo, maddpg or qmix, for team '{group}', got "
            f"'{settings.trainer_type}'{where}: without a team each of {_listed(members)} learns for itself"
        )
        yield Remark(at("trainer_type"), text)
    of_one = f"expected none for team '{group}', because demonstrations are of one behavior"
    for name, signal in settings.reward_signals.items():
        if isinstance(signal, GAILSettings):
            yield Remark(at("reward_signals", name), f"{of_one}; got {name}{where}")
    if settings.behavioral_cloning is not None:
        yield Remark(at("behavioral_cloning"), f"{of_one}; got behavioral_cloning{where}")
    if isinstance(hyper, GroupSettings) and hyper.group_size is not None:
        counts = list(members.values())
        total = sum(count or 0 for count in counts)
        said = ", ".join(f"{name}: {count or 'N'}" for name, count in members.items())
        if None in counts:
            wanted = f"the number of agents of each member, teams: {{{group}: {{{said}}}}}"
            text = f"expected {wanted}, got group_size{where}"
            yield Remark(at("hyperparameters", "group_size"), text)
        elif hyper.group_size != total:
            text = f"expected {total}, the sum of {{{said}}} under 'teams.{group}', got {hyper.group_size}{where}"
            yield Remark(at("hyperparameters", "group_size"), text)


def group_of_member(groups: Groups, behavior: str) -> str | None:
    """The group that a behavior is a member of; None without one."""
    return next((group for group, members in groups.items() if behavior in members), None)


def _listed(names: Mapping[str, Any] | list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
