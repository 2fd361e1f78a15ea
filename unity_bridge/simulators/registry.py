"""The scenes by the names that users write: ``sim:3dball``, ``gym:CartPole-v1``, ``gymma:rware-tiny-4ag-v2``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unity_bridge.errors import PluginError
from unity_bridge.extras import install_hint
from unity_bridge.names import did_you_mean
from unity_bridge.simulators import SIMULATOR_PLUGINS, in_file
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.foreign.lookup.libraries import library_of
from unity_bridge.simulators.foreign.options import (
    FOREIGN_OPTIONS,
    OPTIONS_OF_SCHEME,
    require_known,
    schemes_of,
)
from unity_bridge.simulators.group_scenes.registry import (
    GROUP_SCENES,
    OPTIONS,
    open_group_scene,
    reject_group_options,
)
from unity_bridge.simulators.objects import open_file
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
from unity_bridge.simulators.suggestions import closest_environment
from unity_bridge.simulators.third_party import ForeignCode


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """The settings that a bundled scene is made with."""

    agents: int
    academy: Academy
    pictures: PictureFormat


@dataclass(frozen=True, slots=True)
class BundledScene:
    """A bundled scene without groups, and how to make it."""

    kind: type
    """Its class; the first line of its module becomes the summary on the command line."""

    agents: int
    """The number of agents by default."""

    make: Callable[[SceneOptions], Scene]

    has_camera: bool = False

    parameters: Mapping[str, float] = field(default_factory=dict)
    """The environment parameters that it reads, and their defaults."""


SCENES: Mapping[str, BundledScene] = {
    "3dball": BundledScene(ThreeDBall, 12, lambda options: ThreeDBall(options.agents)),
    "basic": BundledScene(Basic, 1, lambda options: Basic(options.agents)),
    "hybrid": BundledScene(Hybrid, 6, lambda options: Hybrid(options.agents)),
    "gridworld": BundledScene(
        GridWorld,
        9,
        lambda options: GridWorld(options.agents, options.academy, options.pictures),
        has_camera=True,
        parameters=gridworld.PARAMETERS,
    ),
    "hallway": BundledScene(
        Hallway,
        16,
        lambda options: Hallway(options.agents, options.academy),
        parameters=hallway.PARAMETERS,
    ),
    "pyramids": BundledScene(Pyramids, 16, lambda options: Pyramids(options.agents, options.academy)),
    "sorter": BundledScene(
        Sorter, 16, lambda options: Sorter(options.agents, options.academy), parameters=sorter.PARAMETERS
    ),
    "walljump": BundledScene(
        WallJump,
        16,
        lambda options: WallJump(options.agents, options.academy),
        parameters=wall_jump.PARAMETERS,
    ),
}
"""By the NAME of ``sim:NAME``, those without teams; see GROUP_SCENES for the others."""


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


def open_scene(
    env: str,
    *,
    agents: int | None = None,
    academy: Academy | None = None,
    pictures: PictureFormat | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    rendered: bool = False,
) -> Scene:
    """Opens the scene with the name ``env``.

    Args:
        env: ``sim:NAME``, ``gym:ID``, ``gymma:ID``, ``pettingzoo:MODULE``, ``FILE.py:NAME``, or of a plugin's scheme.
        agents: the number of agents; None for the scene's default.
        academy: the environment parameters that the scene reads, and the statistics that it writes.
        pictures: the format of camera observations; None for the scene's default.
        env_kwargs: arguments of the environment; for environments of other libraries only.
        options: options of a scene with teams, by name; the scene's defaults for missing ones.
        rendered: whether render() will be called.

    Raises:
        SceneError: there is no such scene, it cannot be opened, or it does not support an argument.
    """
    scheme, _, name = env.partition(":")
    academy, options = academy or Academy(), options or {}
    if found := in_file(env):
        return open_file(
            *found, env, agents=agents, env_kwargs=env_kwargs, options=options, rendered=rendered
        )
    if name and scheme in SIMULATOR_PLUGINS.offered():
        return _of_plugin(env, agents, academy, env_kwargs, options, rendered=rendered)
    is_foreign = scheme in OPTIONS_OF_SCHEME and bool(name)
    has_groups = scheme == "sim" and name in GROUP_SCENES
    bundled = None if has_groups or is_foreign else _bundled(env)
    _require_camera(env, bundled, pictures)
    _require_parameters(env, bundled, academy)
    if is_foreign:
        return _open_foreign(env, agents, env_kwargs, options, rendered=rendered)
    if env_kwargs:
        raise SceneError(f"{env}: --env-kwargs is for {_listed(tuple(OPTIONS_OF_SCHEME))} environments only")
    _reject_foreign_options(env, options)
    if has_groups:
        return open_group_scene(name, agents, academy, options)
    reject_group_options(env, options)
    assert bundled is not None
    return bundled.make(SceneOptions(agents or bundled.agents, academy, pictures or "png"))


def suggest_environment(env: str) -> str:
    """The environment with the nearest name to one that is none, with its scheme; empty if none is near."""
    return closest_environment(env, (*SCENES, *GROUP_SCENES))


def _of_plugin(
    env: str,
    agents: int | None,
    academy: Academy,
    env_kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    """The scene of a scheme that another distribution offers."""
    scheme, _, name = env.partition(":")
    for option in options:
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
        agents=agents,
        academy=academy,
        env_kwargs=env_kwargs or {},
        rendered=rendered,
    )
    return scene


def _bundled(env: str) -> BundledScene:
    scheme, _, name = env.partition(":")
    if scheme != "sim":
        near = suggest_environment(env)
        hint = f" (did you mean '{near}'?)" if near else ""
        raise SceneError(
            f"{env}: expected sim:NAME, gym:ID, gymma:ID, pettingzoo:MODULE or FILE.py:NAME{hint}"
        )
    if name not in SCENES:
        scenes = [*SCENES, *GROUP_SCENES]
        known = ", ".join(f"sim:{scene}" for scene in scenes)
        hint = did_you_mean(name.removeprefix("sim:"), scenes, "did you mean 'sim:{}'?")
        raise SceneError(f"{env}: no such scene; expected one of {known}{hint}")
    return SCENES[name]


def _open_foreign(
    env: str,
    agents: int | None,
    env_kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    """An environment of another library. See ``open_scene``."""
    scheme, _, name = env.partition(":")
    known = OPTIONS_OF_SCHEME[scheme]
    if "copies" in known:
        if agents is not None:
            expected = ", ".join(map(flag_of, known))
            raise SceneError(f"{env}: --agents is for scenes without teams; expected {expected}")
        require_known(env, options, known)
    else:
        _reject_foreign_options(env, {name: value for name, value in options.items() if name not in known})
        if "copies" in options:
            raise SceneError(f"{env}: copies of it are agents; expected --agents {options['copies']}")
        reject_group_options(env, {name: value for name, value in options.items() if name in OPTIONS})
    try:
        return _opener(env)(env, agents, env_kwargs or {}, options, rendered=rendered)
    except SceneError as error:
        library = library_of(name.rpartition(":")[2]) if scheme == "gym" else None
        if library is None or library.scheme == "gym" or "gymma:" in str(error):
            raise
        raise SceneError(f"{error} (did you mean gymma:{name}, of {library.module}?)") from error.__cause__


def _opener(env: str) -> Callable[..., Scene]:
    """Opens environments of other libraries. Its module imports these, which are extras and slow to import."""
    scheme = env.partition(":")[0]
    library = "PettingZoo" if scheme == "pettingzoo" else "Gymnasium"
    install = f"run: {install_hint(scheme)}"
    try:
        if scheme == "pettingzoo":
            importlib.import_module("pettingzoo")
        from unity_bridge.simulators.foreign.open import open_named
    except ModuleNotFoundError as error:
        if error.name not in ("gymnasium", "pettingzoo"):
            raise
        raise SceneError(f"{env}: {library} is not installed; {install}") from None
    except ImportError as error:
        raise SceneError(f"{env}: {library} is too old ({error}); {install}") from None
    return open_named


def _reject_foreign_options(env: str, options: Mapping[str, Any]) -> None:
    for option in options:
        if option in FOREIGN_OPTIONS:
            raise SceneError(
                f"{env}: {flag_of(option)} is for {_listed(schemes_of(option))} environments only"
            )


def _listed(schemes: Sequence[str]) -> str:
    *most, last = [f"{scheme}:" for scheme in schemes]
    return f"{', '.join(most)} and {last}" if most else last


def _require_camera(env: str, bundled: BundledScene | None, pictures: PictureFormat | None) -> None:
    if pictures and not (bundled and bundled.has_camera):
        seeing = ", ".join(f"sim:{name}" for name, scene in SCENES.items() if scene.has_camera)
        raise SceneError(f"{env}: --pictures is for scenes with a camera only: {seeing}")


def _require_parameters(env: str, bundled: BundledScene | None, academy: Academy) -> None:
    known = sorted(bundled.parameters) if bundled else []
    for name in sorted(academy.parameters.fixed - set(known)):
        expected = f"expected one of {', '.join(known)}" if known else "it has none"
        raise SceneError(f"{env}: no environment parameter '{name}'; {expected}{did_you_mean(name, known)}")
