"""Roles: which agents of an environment share a behavior, its name, and how its agents see and act."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from gymnasium import spaces

from unity_bridge.names import name_problem, shortened
from unity_bridge.simulators.foreign import spaces as sensor_spaces
from unity_bridge.simulators.foreign.actions import Actuator, actuator
from unity_bridge.simulators.foreign.environment import Agent, Description
from unity_bridge.simulators.foreign.masks import MaskReader, mask_member
from unity_bridge.simulators.foreign.spaces import Sensor
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

_MOST_KINDS = 3
"""Maximum number of kinds of agents in the name of a behavior."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Sensors and actuator of agents with certain spaces."""

    sensors: tuple[Sensor, ...]
    actuator: Actuator

    mask: str | None
    """The member of observations that is the action mask; None where they hold none."""


@dataclass(frozen=True, slots=True)
class Role:
    """One behavior, and the agents that share it: they see and act alike."""

    behavior: str
    """Its id: ``NAME?team=0``."""

    agents: tuple[Agent, ...]
    interface: Interface
    masks: MaskReader


def interface_of(
    observation_space: Any, action_space: Any, code: ForeignCode, prefix: tuple[str, ...] = ()
) -> Interface:
    """Returns sensors and an actuator for an agent's spaces.

    A mask among the members of a Dict is no sensor. Where one other member is left that is called ``observation``, as
    in PettingZoo's games, its sensors are called as if there were no Dict.

    Raises:
        SceneError: a space that cannot be sent. Names it.
    """
    does = actuator(action_space)
    mask = mask_member(observation_space, does, code)
    if mask is None:
        return Interface(tuple(sensor_spaces.sensors(observation_space, code, prefix)), does, None)
    rest = {key: member for key, member in observation_space.spaces.items() if key != mask}
    if list(rest) != ["observation"]:
        found = sensor_spaces.sensors(spaces.Dict(rest), code, prefix)
    else:
        inner = sensor_spaces.sensors(rest["observation"], code, prefix)
        found = [replace(each, path=("observation", *each.path)) for each in inner]
    return Interface(tuple(found), does, mask)


def assign_roles(
    env: Description, name: str, code: ForeignCode, wanted: Sequence[tuple[str, str]] = ()
) -> list[Role]:
    """Gives every possible agent a role.

    Agents with equal observation and action spaces share a role. If there is just one role, its behavior has the
    environment's name. If there are several, each adds its agents' name without the numbers:
    ``simple_tag_v3_adversary`` and ``simple_tag_v3_agent``. If these names do not differ, each adds its first agent's
    name. All names are valid folder names: other characters are replaced, and long names are shortened.

    Args:
        env, name: the environment's description and name.
        code: takes warnings.
        wanted: patterns of agents' names (as in a shell) with the behavior that they shall have; the first that
            fits counts. If there are any, every agent must have one, and each must fit an agent.

    Raises:
        SceneError: agents without a behavior, different ones with the same, or a space that cannot be sent.
    """
    seen = env.spaces
    groups = _as_wanted(seen, wanted) if wanted else _alike(seen, name)
    prefix = ("observation",) if env.has_groups else ()
    return [_role(behavior, agents, seen[agents[0]], code, prefix) for behavior, agents in groups.items()]


Spaces = Mapping[Agent, tuple[Any, Any]]


def _alike(seen: Spaces, name: str) -> dict[str, list[Agent]]:
    groups: list[list[Agent]] = []
    for agent, pair in seen.items():
        for group in groups:
            if seen[group[0]] == pair:
                group.append(agent)
                break
        else:
            groups.append([agent])
    if len(groups) == 1:
        return {_file_name(name): groups[0]}
    titles = ["_".join(_kinds(group)) for group in groups]
    if len({*titles, ""}) <= len(titles):  # one is empty, or two are equal
        titles = [_plain(group[0]) for group in groups]
    named: dict[str, list[Agent]] = {}
    for title, group in zip(titles, groups, strict=True):
        behavior = f"{name}_{title}"
        unique = behavior if _file_name(behavior) not in named else f"{behavior}_{len(named)}"
        named[_file_name(unique)] = group
    return named


def _kinds(agents: Sequence[Agent]) -> list[str]:
    """The names of agents without their numbers; only the first if those are many."""
    kinds = list(dict.fromkeys(re.sub(r"[_-]?\d+$", "", _plain(agent)) for agent in agents))
    return kinds if len(kinds) <= _MOST_KINDS else kinds[:1]


def _plain(agent: Agent) -> str:
    """A name that can be part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", str(agent))


def _file_name(name: str) -> str:
    """A name that was made here, as one that a behavior may have."""
    name = shortened(name)
    if name_problem(name, windows=True) is None:
        return name
    plain = shortened(_plain(name).strip("._-") or "agent")
    return plain if name_problem(plain, windows=True) is None else shortened(f"behavior_{plain}_")


def _as_wanted(seen: Spaces, wanted: Sequence[tuple[str, str]]) -> dict[str, list[Agent]]:
    groups: dict[str, list[Agent]] = {}
    used = set()
    for agent, pair in seen.items():
        fitting = [(pattern, behavior) for pattern, behavior in wanted if fnmatchcase(str(agent), pattern)]
        if not fitting:
            patterns = ", ".join(pattern for pattern, _ in wanted)
            raise SceneError(f"--behaviors: agent '{agent}' fits none of {patterns}")
        pattern, behavior = fitting[0]
        used.add(pattern)
        group = groups.setdefault(behavior, [])
        group.append(agent)
        if seen[group[0]] != pair:
            raise SceneError(
                f"--behaviors: agents '{group[0]}' and '{agent}' cannot share behavior '{behavior}': "
                f"spaces {seen[group[0]]} and {pair}"
            )
    for pattern, behavior in wanted:
        if pattern not in used:
            known = ", ".join(str(agent) for agent in seen)
            raise SceneError(f"--behaviors: '{pattern}' is left with none of the agents {known}")
        if problem := name_problem(behavior.partition("?team=")[0]):
            raise SceneError(f"--behaviors: the name '{behavior:.60}' {problem}")
    return groups


def _role(
    behavior: str,
    agents: Sequence[Agent],
    pair: tuple[Any, Any],
    code: ForeignCode,
    prefix: tuple[str, ...],
) -> Role:
    name, _, team = behavior.partition("?team=")
    try:
        interface = interface_of(*pair, code, prefix)
    except SceneError as error:
        raise SceneError(f"agent '{agents[0]}': {error}" if prefix else str(error)) from None
    masks = MaskReader(name, interface.actuator, interface.mask, code)
    return Role(f"{name}?team={team or 0}", tuple(agents), interface, masks)
