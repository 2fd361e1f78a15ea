"""The options of ``pettingzoo:`` environments, and their flags on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from unity_bridge.simulators.multi_agent_envs import options as shared
from unity_bridge.simulators.scene import Scene, SceneError

OWN_OPTIONS = ("aec",)
"""Options that no other scene understands."""

_OPTIONS = ("copies", *shared.OWN_OPTIONS, *OWN_OPTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that only these environments understand."""
    parser.add_argument(
        "--aec",
        action="store_true",
        default=None,
        help="let agents act in turn even where they could act at the same time (pettingzoo:)",
    )


def open_pettingzoo(
    module: str,
    agents: int | None,
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    """The environment of a module.

    Args:
        module: as Python imports it.
        agents: the user's number of agents, which these environments do not take.
        kwargs: of the environment.
        options: by name.
        rendered: whether render() will be called.

    Raises:
        SceneError: PettingZoo is not installed, an option is none, or as PettingZooScene.
    """
    shared.require_known(f"pettingzoo:{module}", agents, options, _OPTIONS)
    try:
        from unity_bridge.simulators.pettingzoo_envs.scene import (
            PettingZooScene,  # an extra, and slow to import
        )
    except ModuleNotFoundError as error:
        if error.name not in ("gymnasium", "pettingzoo"):
            raise
        raise SceneError(
            f"pettingzoo:{module}: PettingZoo is not installed; run: pip install 'trainer-service[pettingzoo]'"
        ) from None
    return PettingZooScene(module, kwargs=kwargs, rendered=rendered, **options)
