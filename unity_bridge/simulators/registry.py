"""From what the user wrote (``sim:3dball``, ``gym:CartPole-v1``) to a scene."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from unity_bridge.simulators.basic import Basic
from unity_bridge.simulators.hybrid import Hybrid
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.simulators.three_d_ball import ThreeDBall

SCENES: Mapping[str, Callable[[int], Scene]] = {"3dball": ThreeDBall, "basic": Basic, "hybrid": Hybrid}
"""The scenes of ours, made for a number of agents."""

DEFAULT_AGENTS: Mapping[str, int] = {"3dball": 12, "basic": 1, "hybrid": 6}


def open_scene(
    env: str,
    *,
    agents: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    rendered: bool = False,
) -> Scene:
    """The scene called env.

    Args:
        env: ``sim:NAME`` or ``gym:ID``.
        agents: how many; the scene's own number if None.
        env_kwargs: passed on to ``gymnasium.make``; only for ``gym:``.
        rendered: whether render() will be called.

    Raises:
        SceneError: there is no such scene, or it cannot be opened.
    """
    scheme, _, name = env.partition(":")
    if scheme == "gym" and name:
        return _gym(name, agents or 1, env_kwargs, rendered=rendered)
    if scheme == "pettingzoo":
        raise SceneError(f"{env}: PettingZoo environments are not built yet; expected sim:NAME or gym:ID")
    if scheme != "sim":
        raise SceneError(f"{env}: expected sim:NAME or gym:ID{_nearest_scene(env)}")
    if name not in SCENES:
        known = ", ".join(f"sim:{scene}" for scene in SCENES)
        raise SceneError(f"{env}: no such scene; expected one of {known}{_nearest_scene(name)}")
    if env_kwargs:
        raise SceneError(f"{env}: --env-kwargs is for gym: environments only")
    return SCENES[name](agents or DEFAULT_AGENTS[name])


def _gym(env_id: str, agents: int, kwargs: Mapping[str, Any] | None, *, rendered: bool) -> Scene:
    try:
        from unity_bridge.simulators.gym_scene import GymScene  # an extra, and slow to import
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise SceneError(
            f"gym:{env_id}: Gymnasium is not installed; run: pip install 'trainer-service[gym]'"
        ) from None
    return GymScene(env_id, agents, kwargs, rendered=rendered)


def _nearest_scene(name: str) -> str:
    near = difflib.get_close_matches(name.removeprefix("sim:").lower(), SCENES, n=1)
    return f" (did you mean 'sim:{near[0]}'?)" if near else ""
