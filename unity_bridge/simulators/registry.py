"""The scenes by the names that users write: ``sim:3dball``, ``gym:CartPole-v1``, ``walk.py:Walk``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from unity_bridge.errors import PluginError
from unity_bridge.names import did_you_mean
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.foreign.lookup.nearest import closest_environment
from unity_bridge.simulators.foreign.options import FOREIGN_OPTIONS, named_schemes
from unity_bridge.simulators.group_scenes.registry import (
    GROUP_SCENES,
    open_group_scene,
    reject_group_options,
)
from unity_bridge.simulators.scene import Scene, SceneError, flag_of
from unity_bridge.simulators.scenes import gridworld, hallway, sorter, wall_jump
from unity_bridge.simulators.scenes.basic import Basic
from unity_bridge.simulators.scenes.grid_camera import PictureFormat
from unity_bridge.simulators.scenes.gridworld import GridWorld
from unity_bridge.simulators.scenes.hallway import Hallway
from unity_bridge.simulators.scenes.hybrid import Hybrid
from unity_bridge.simulators.scenes.pyramids import Pyramids
from unity_bridge.simulators.scenes.sorter import Sorter
from unity_bridge.simulators.scenes.three_d_ball import ThreeDBall
from unity_bridge.simulators.scenes.wall_jump import WallJump
from unity_bridge.simulators.schemes import SIMULATOR_PLUGINS, SceneRequest, known_schemes, scheme_of
from unity_bridge.simulators.third_party import ForeignCode


@dataclass(frozen=True, slots=True)
class BundledScene:
    """A bundled scene without groups, and how to make it."""

    kind: type
    """Its class; the first line of its module becomes the summary on the command line."""

    agents: int
    """The number of agents by default."""

    make: Callable[[int, Academy, PictureFormat], Scene]

    has_camera: bool = False

    parameters: Mapping[str, float] = field(default_factory=dict)
    """The environment parameters that it reads, and their defaults."""


SCENES: Mapping[str, BundledScene] = {
    "3dball": BundledScene(ThreeDBall, 12, lambda agents, *_: ThreeDBall(agents)),
    "basic": BundledScene(Basic, 1, lambda agents, *_: Basic(agents)),
    "hybrid": BundledScene(Hybrid, 6, lambda agents, *_: Hybrid(agents)),
    "gridworld": BundledScene(GridWorld, 9, GridWorld, has_camera=True, parameters=gridworld.PARAMETERS),
    "hallway": BundledScene(
        Hallway, 16, lambda agents, academy, _: Hallway(agents, academy), parameters=hallway.PARAMETERS
    ),
    "pyramids": BundledScene(Pyramids, 16, lambda agents, academy, _: Pyramids(agents, academy)),
    "sorter": BundledScene(
        Sorter, 16, lambda agents, academy, _: Sorter(agents, academy), parameters=sorter.PARAMETERS
    ),
    "walljump": BundledScene(
        WallJump, 16, lambda agents, academy, _: WallJump(agents, academy), parameters=wall_jump.PARAMETERS
    ),
}
"""By the NAME of ``sim:NAME``, those without teams; see GROUP_SCENES for the others."""

SCENE_NAMES = (*SCENES, *GROUP_SCENES)


def copies_of(env: str) -> tuple[str, int]:
    """The flag that sets the number of copies of an environment, and how many to suggest; empty and 0 for none.

    None are suggested for a bundled scene that has many agents by itself, as those with groups have.
    """
    scheme, name = scheme_of(env), env.partition(":")[2]
    if scheme is None or scheme.kind != "scene":
        return scheme.copies if scheme else ("", 0)
    if name not in SCENES:
        return "--copies", 0
    return "--agents", 8 if SCENES[name].agents < 4 else 0


def experts() -> list[str]:
    """The scenes that have an expert of their own, as users write them: ``sim:NAME``."""
    kinds = {name: each.kind for name, each in SCENES.items()} | {
        name: each.kind for name, each in GROUP_SCENES.items()
    }
    return [f"sim:{name}" for name, kind in kinds.items() if hasattr(kind, "expert")]


def no_expert(env: str) -> str:
    """A message that an environment has no expert, and which scenes have one."""
    known = experts()
    return f"'{env}' has no expert of its own; expected one of {', '.join(known)}{did_you_mean(env, known)}"


def open_scene(env: str, **wanted: Any) -> Scene:
    """Opens the environment of any scheme, with the fields of ``SceneRequest``.

    Raises:
        SceneError: there is no such environment, it cannot be opened, or it does not support an argument.
    """
    scheme = scheme_of(env)
    if scheme is None or not scheme.form or env == f"{scheme.name}:":
        *most, last = [each.form for each in known_schemes()]
        near = closest_environment(env)
        hint = f" (did you mean '{near}'?)" if near else ""
        raise SceneError(f"{env}: expected {', '.join(most)} or {last}{hint}")
    return scheme.open(env, SceneRequest(**wanted))


def open_bundled(env: str, wanted: SceneRequest) -> Scene:
    """A bundled scene; see ``open_scene``."""
    name, options, pictures = env.partition(":")[2], wanted.options or {}, wanted.pictures
    bundled = SCENES.get(name)
    if bundled is None and name not in GROUP_SCENES:
        known = ", ".join(f"sim:{scene}" for scene in SCENE_NAMES)
        hint = did_you_mean(name.removeprefix("sim:"), SCENE_NAMES, "did you mean 'sim:{}'?")
        raise SceneError(f"{env}: no such scene; expected one of {known}{hint}")
    if pictures and not (bundled and bundled.has_camera):
        seeing = ", ".join(f"sim:{name}" for name, scene in SCENES.items() if scene.has_camera)
        raise SceneError(f"{env}: --pictures is for scenes with a camera only: {seeing}")
    academy = wanted.academy or Academy()
    academy.parameters.declare(env, bundled.parameters if bundled else ())
    if wanted.env_kwargs:
        raise SceneError(f"{env}: --env-kwargs is for {named_schemes()} environments only")
    for option in options:
        if option in FOREIGN_OPTIONS:
            raise SceneError(f"{env}: {flag_of(option)} is for {named_schemes(option)} environments only")
    if bundled is None:
        return open_group_scene(name, wanted.agents, academy, options)
    reject_group_options(env, options)
    return bundled.make(wanted.agents or bundled.agents, academy, pictures or "png")


def open_plugin(env: str, wanted: SceneRequest) -> Scene:
    """The scene of a scheme that another distribution offers; see ``open_scene``."""
    scheme, _, name = env.partition(":")
    for option in (*(["pictures"] if wanted.pictures else ()), *(wanted.options or {})):
        raise SceneError(
            f"{env}: {flag_of(option)} is for environments of other schemes; --env-kwargs is for all"
        )
    try:
        opener = SIMULATOR_PLUGINS.offered()[scheme].load()
    except PluginError as error:
        raise SceneError(str(error)) from error.__cause__
    scene: Scene = ForeignCode(env).call(
        "the plugin",
        opener,
        name,
        agents=wanted.agents,
        academy=wanted.academy or Academy(),
        env_kwargs=wanted.env_kwargs or {},
        rendered=wanted.rendered,
    )
    return scene
