"""The bundled scenes in which agents have a team, and the options that they understand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.group_scenes.duel import Duel
from unity_bridge.simulators.group_scenes.goal import Goal
from unity_bridge.simulators.group_scenes.push_block import PushBlock
from unity_bridge.simulators.group_scenes.spread import Spread
from unity_bridge.simulators.group_scenes.switch import Switch
from unity_bridge.simulators.scene import Scene, SceneError, flag_of


@dataclass(frozen=True, slots=True)
class Option:
    """An option of scenes with groups, as the user may set it."""

    meaning: str

    is_switch: bool = False
    """On or off; otherwise a number from 1 on."""


OPTIONS: Mapping[str, Option] = {
    "copies": Option("how many copies of the team, or of the match, there are side by side"),
    "agents_per_copy": Option("how many agents a team, or a side, has"),
    "steps": Option("after how many decisions an episode is cut off"),
    "continuous": Option("let agents act by numbers, not by choices", is_switch=True),
    "full_view": Option("let every agent see what all of its team see", is_switch=True),
    "clock": Option("let agents see how far the episode is", is_switch=True),
    "respawn": Option("let agents that died come back after so many decisions"),
}
"""The options of all scenes with groups, by name."""


@dataclass(frozen=True, slots=True)
class GroupScene:
    """A bundled scene with groups, and how to make it."""

    kind: type
    """Its class; the first line of its module becomes the summary on the command line."""

    make: Callable[..., Scene]
    """Takes the options below and an academy by name. Raises ValueError for a value that makes no sense."""

    options: Mapping[str, Any]
    """The options that it understands, and their defaults."""


_SWITCH = {"copies": 16, "steps": 50, "full_view": False, "clock": False}

GROUP_SCENES: Mapping[str, GroupScene] = {
    "spread": GroupScene(
        Spread, Spread, {"copies": 16, "agents_per_copy": 3, "steps": 25, "continuous": False}
    ),
    "duel": GroupScene(Duel, Duel, {"copies": 16, "agents_per_copy": 1, "steps": 300, "continuous": False}),
    "goal": GroupScene(Goal, Goal, {"copies": 16, "agents_per_copy": 3}),
    "pushblock": GroupScene(
        PushBlock, PushBlock, {"copies": 6, "agents_per_copy": 4, "steps": 100, "respawn": None}
    ),
    "switch2": GroupScene(Switch, partial(Switch, 2), _SWITCH),
    "switch3": GroupScene(Switch, partial(Switch, 3), _SWITCH),
    "switch4": GroupScene(Switch, partial(Switch, 4), _SWITCH),
}
"""By the NAME of ``sim:NAME``."""


def open_group_scene(name: str, agents: int | None, academy: Academy, given: Mapping[str, Any]) -> Scene:
    """The scene with teams of that name.

    Args:
        name: one of GROUP_SCENES.
        agents: the user's number of agents, which these scenes do not take.
        academy: where the scene leaves statistics.
        given: options by name.

    Raises:
        SceneError: it does not understand an option, or a value makes no sense.
    """
    scene = GROUP_SCENES[name]
    known = [flag_of(option) for option in scene.options]
    if agents is not None:
        raise SceneError(f"sim:{name}: --agents is for scenes without teams; expected {', '.join(known)}")
    for option in given:
        if option not in scene.options:
            raise SceneError(f"sim:{name}: it has no {flag_of(option)}; expected {', '.join(known)}")
    try:
        return scene.make(**{**scene.options, **given}, academy=academy)
    except ValueError as error:
        raise SceneError(f"sim:{name}: {error}") from None


def reject_group_options(env: str, given: Mapping[str, Any]) -> None:
    """Refuses options that only scenes with groups understand.

    Raises:
        SceneError: something was given.
    """
    for option in given:
        scenes = (f"sim:{name}" for name, scene in GROUP_SCENES.items() if option in scene.options)
        raise SceneError(f"{env}: {flag_of(option)} is for scenes with teams only: {', '.join(scenes)}")
