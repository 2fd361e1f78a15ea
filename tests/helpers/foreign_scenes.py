"""Scenes of environments of other libraries, by what tests most often give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene


def open_gym(
    name: str,
    agents: int | None,
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    """The environment of ``gym:NAME``."""
    return open_scene(f"gym:{name}", agents=agents, env_kwargs=kwargs, options=options, rendered=rendered)


def pettingzoo_scene(
    module: str,
    copies: int = 1,
    kwargs: Mapping[str, Any] | None = None,
    *,
    rendered: bool = False,
    **options: Any,
) -> Scene:
    """The environment of ``pettingzoo:MODULE``; options that are None are left out."""
    return _of_several(f"pettingzoo:{module}", copies, kwargs, options, rendered)


def gymma_scene(
    name: str,
    copies: int = 1,
    kwargs: Mapping[str, Any] | None = None,
    *,
    rendered: bool = False,
    **options: Any,
) -> Scene:
    """The environment of ``gymma:NAME``; options that are None are left out."""
    return _of_several(f"gymma:{name}", copies, kwargs, options, rendered)


def _of_several(
    env: str, copies: int, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any], rendered: bool
) -> Scene:
    given = {name: value for name, value in options.items() if value is not None}
    return open_scene(env, env_kwargs=kwargs, options={"copies": copies, **given}, rendered=rendered)
