"""Teams: behaviors whose agents see or do different things, and learn as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from trainer_service.config.hyperparameters.common import GroupSettings
from trainer_service.config.rewards import GAILSettings
from trainer_service.config.section import Location, nearest_choice
from trainer_service.config.trainer import TrainerSettings
from trainer_service.config.values import PositiveCount, expected, problem, shown
from unity_bridge.names import name_problem


def _as_behavior_name(name: str) -> str:
    if reason := name_problem(name):
        raise problem(f"behavior name {shown(name)} {reason}")
    return name


BehaviorName = Annotated[str, AfterValidator(_as_behavior_name)]


def _as_members(value: Any) -> Any:
    """Reads names of behaviors, or how many agents of each a group has by their names."""
    if not isinstance(value, Mapping | list | tuple):
        raise expected("a list of behaviors, or a mapping from behaviors to numbers of agents", value)
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise expected("the name of a behavior", name)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise problem(f"'{twice}' stands there twice")
    if len(names) < 2:
        raise problem(f"expected at least two behaviors, got {_listed(names)}")
    return dict(value) if isinstance(value, Mapping) else dict.fromkeys(names)


Members = Annotated[
    dict[BehaviorName, PositiveCount | None],
    BeforeValidator(_as_members),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
                {
                    "type": "object",
                    "additionalProperties": {"type": ["integer", "null"], "minimum": 1},
                    "minProperties": 2,
                },
            ]
        }
    ),
]
"""The behaviors of a team in the order of their agents' indices, with the most agents that a group has of each: None
where its first message shall tell."""

Teams = Mapping[str, Mapping[str, int | None]]


class TeamProblem(NamedTuple):
    """A mistake about teams."""

    location: Location
    text: str


def team_problems(
    teams: Teams, behaviors: Mapping[str, TrainerSettings], default_settings: TrainerSettings | None
) -> Iterator[TeamProblem]:
    """Yields what is wrong with teams beside the settings of their behaviors."""
    team_of: dict[str, str] = {}
    for team, members in teams.items():
        for member in members:
            if member in teams:
                yield TeamProblem(
                    ("teams", team), f"'{member}' is the name of a team, and cannot be a member of one"
                )
            if member in team_of:
                text = f"'{member}' is a member of '{team_of[member]}' already, expected it in one team"
                yield TeamProblem(("teams", team), text)
            elif member in behaviors and member not in teams:
                text = (
                    f"expected no settings for '{member}', which learns as a part of team '{team}': those of the team "
                    f"stand under 'behaviors.{team}'"
                )
                yield TeamProblem(("behaviors", member), text)
            team_of.setdefault(member, team)
        settings = behaviors.get(team, default_settings)
        if settings is None:
            near = nearest_choice(team, behaviors)
            hint = f" (is '{near}' meant?)" if near else ""
            where = f"an entry for '{team}' under 'behaviors', or set 'default_settings'"
            text = f"the team has no settings{hint}: add {where}"
            yield TeamProblem(("teams", team), text)
        else:
            yield from _unfit_settings(team, members, settings, is_listed=team in behaviors)


def _unfit_settings(
    team: str, members: Mapping[str, int | None], settings: TrainerSettings, *, is_listed: bool
) -> Iterator[TeamProblem]:
    """Yields settings that cannot serve a team. is_listed: they stand under its name, not as the default."""

    def at(*keys: str) -> Location:
        return ("behaviors", team, *keys) if is_listed else ("teams", team)

    hyper = settings.hyperparameters
    where = "" if is_listed else " by default_settings"
    if hyper.learns and not hyper.learns_by_group:
        text = (
            f"expected a trainer type for groups, such as mappo, maddpg or qmix, for team '{team}', got "
            f"'{settings.trainer_type}'{where}: without a team each of {_listed(members)} learns for itself"
        )
        yield TeamProblem(at("trainer_type"), text)
    of_one = f"expected none for team '{team}', because demonstrations are of one behavior"
    for name, signal in settings.reward_signals.items():
        if isinstance(signal, GAILSettings):
            yield TeamProblem(at("reward_signals", name), f"{of_one}; got {name}{where}")
    if settings.behavioral_cloning is not None:
        yield TeamProblem(at("behavioral_cloning"), f"{of_one}; got behavioral_cloning{where}")
    if isinstance(hyper, GroupSettings) and hyper.group_size is not None:
        counts = list(members.values())
        total = sum(count or 0 for count in counts)
        said = ", ".join(f"{name}: {count or 'N'}" for name, count in members.items())
        if None in counts:
            text = f"expected the number of agents of each member, teams: {{{team}: {{{said}}}}}, got group_size{where}"
            yield TeamProblem(at("hyperparameters", "group_size"), text)
        elif hyper.group_size != total:
            text = (
                f"expected {total}, the sum of {{{said}}} under 'teams.{team}', got {hyper.group_size}{where}"
            )
            yield TeamProblem(at("hyperparameters", "group_size"), text)


def team_of_member(teams: Teams, behavior: str) -> str | None:
    """The team that a behavior is a member of; None where it is of none."""
    return next((team for team, members in teams.items() if behavior in members), None)


def _listed(names: Mapping[str, Any] | list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
