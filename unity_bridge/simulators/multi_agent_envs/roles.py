"""Roles: which agents of an environment share a behavior, its name, and how its agents see and act."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gymnasium import spaces

from unity_bridge.simulators.gym_envs import spaces as gym_spaces
from unity_bridge.simulators.gym_envs.spaces import Actuator, Sensor
from unity_bridge.simulators.scene import SceneError

Agent = Hashable
"""What PettingZoo calls an agent by: most often a text such as ``adversary_0``."""

MASK = "action_mask"
"""The member of an observation, or of an info, that says what is allowed."""

_MOST_KINDS = 3
"""Names of behaviors list so many kinds of agents."""


@dataclass(frozen=True, slots=True)
class Role:
    """One behavior, and the agents that share it: they see and act alike."""

    behavior: str
    """Its id: ``NAME?team=0``."""

    agents: tuple[Agent, ...]
    sensors: tuple[Sensor, ...]
    actuator: Actuator

    shows_mask: bool
    """Whether observations hold a mask."""


def assign_roles(env: Any, name: str, wanted: Sequence[tuple[str, str]] = ()) -> list[Role]:
    """Gives every possible agent a role.

    Agents with equal observation and action spaces share one. If there is just one, its behavior is called
    like the environment; if there are several, by what their agents are called besides, without the numbers:
    ``simple_tag_v3_adversary`` and ``simple_tag_v3_agent``. Where that does not tell them apart, each is called
    by its first agent.

    Args:
        env: parallel.
        name: of the environment.
        wanted: patterns of agents' names (as in a shell) with the behavior that they shall have; the first that
            fits counts. If there are any, every agent must have one, and each must fit an agent.

    Raises:
        SceneError: agents without a behavior, different ones with the same, or a space that cannot be sent.
    """
    seen = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents}
    groups = _as_wanted(seen, wanted) if wanted else _alike(seen, name)
    return [_role(behavior, agents, *seen[agents[0]]) for behavior, agents in groups.items()]


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
        return {name: groups[0]}
    titles = ["_".join(_kinds(group)) for group in groups]
    if len({*titles, ""}) <= len(titles):  # one is empty, or two are equal
        titles = [_plain(group[0]) for group in groups]
    return {f"{name}_{title}": group for title, group in zip(titles, groups, strict=True)}


def _kinds(agents: Sequence[Agent]) -> list[str]:
    """The names of agents without their numbers; only the first if those are many."""
    kinds = list(dict.fromkeys(re.sub(r"[_-]?\d+$", "", _plain(agent)) for agent in agents))
    return kinds if len(kinds) <= _MOST_KINDS else kinds[:1]


def _plain(agent: Agent) -> str:
    """A name that can be part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", str(agent))


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
    for pattern, _ in wanted:
        if pattern not in used:
            known = ", ".join(str(agent) for agent in seen)
            raise SceneError(f"--behaviors: '{pattern}' is left with none of the agents {known}")
    return groups


def _role(behavior: str, agents: Sequence[Agent], seen: Any, done: Any) -> Role:
    name, _, team = behavior.partition("?team=")
    try:
        actuator = gym_spaces.actuator(done)
        shows_mask = isinstance(seen, spaces.Dict) and MASK in seen.spaces
        sensors = _beside_mask(seen) if shows_mask else gym_spaces.sensors(seen, ("observation",))
    except SceneError as error:
        raise SceneError(f"agent '{agents[0]}': {error}") from None
    return Role(f"{name}?team={team or 0}", tuple(agents), tuple(sensors), actuator, shows_mask)


def _beside_mask(space: spaces.Dict) -> list[Sensor]:
    """Sensors of a Dict with a mask; PettingZoo's games put all the rest into ``observation``."""
    rest = {key: member for key, member in space.spaces.items() if key != MASK}
    if list(rest) != ["observation"]:
        return gym_spaces.sensors(spaces.Dict(rest), ("observation",))
    return [
        _under("observation", inner) for inner in gym_spaces.sensors(rest["observation"], ("observation",))
    ]


def _under(key: str, inner: Sensor) -> Sensor:
    return Sensor(inner.spec, lambda observation: inner.read(observation[key]))
