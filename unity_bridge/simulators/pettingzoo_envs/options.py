"""The options of ``pettingzoo:`` environments, and their flags on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from unity_bridge.simulators.scene import Scene, SceneError, flag_of

OWN_OPTIONS = ("with_state", "behaviors")
"""Options that no other scene understands."""

_OPTIONS = ("copies", *OWN_OPTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that only these environments understand."""
    parser.add_argument(
        "--with-state",
        action=argparse.BooleanOptionalAction,
        help="show a central critic the state of the whole environment, or do not; it is shown where agents "
        "have several behaviors and see no pictures (pettingzoo:)",
    )
    parser.add_argument(
        "--behaviors",
        type=_behaviors,
        metavar="AGENTS=NAME,...",
        help="what agents' behaviors are called, such as 'agent_*=good,adversary_*=bad' (pettingzoo:)",
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
    known = ", ".join(map(flag_of, _OPTIONS))
    if agents is not None:
        raise SceneError(f"pettingzoo:{module}: --agents is for scenes without teams; expected {known}")
    for option in options:
        if option not in _OPTIONS:
            raise SceneError(f"pettingzoo:{module}: it has no {flag_of(option)}; expected {known}")
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


def reject_pettingzoo_options(env: str, options: Mapping[str, Any]) -> None:
    """Refuses options that only these environments understand.

    Raises:
        SceneError: something was given.
    """
    for option in OWN_OPTIONS:
        if option in options:
            raise SceneError(f"{env}: {flag_of(option)} is for pettingzoo: environments only")


def _behaviors(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text.split(","):
        pattern, equals, behavior = part.partition("=")
        if not (pattern and equals and behavior):
            raise argparse.ArgumentTypeError(f"expected AGENTS=NAME,..., got {text!r}")
        pairs.append((pattern, behavior))
    return tuple(pairs)
