"""The options of ``gymma:`` environments, and their flags on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from unity_bridge.simulators.multi_agent_envs import options as shared
from unity_bridge.simulators.scene import Scene, SceneError

OWN_OPTIONS = ("common_reward",)
"""Options that no other scene understands."""

_OPTIONS = ("copies", "steps", *shared.OWN_OPTIONS, *OWN_OPTIONS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that only these environments understand."""
    parser.add_argument(
        "--common-reward",
        choices=("sum", "mean"),
        help="pay each group the sum or the mean of its agents' rewards, instead of each agent its own (gymma:)",
    )


def open_gymma(
    name: str,
    agents: int | None,
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    """The environment of a name.

    Args:
        name: what stands after ``gymma:``.
        agents: the user's number of agents, which these environments do not take.
        kwargs: of the environment.
        options: by name.
        rendered: whether render() will be called.

    Raises:
        SceneError: Gymnasium is not installed, an option is none, or as GymmaScene.
    """
    shared.require_known(f"gymma:{name}", agents, options, _OPTIONS)
    try:
        from unity_bridge.simulators.gymma_envs.scene import GymmaScene  # an extra, and slow to import
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise SceneError(
            f"gymma:{name}: Gymnasium is not installed; run: pip install 'trainer-service[gymma]'"
        ) from None
    return GymmaScene(name, kwargs=kwargs, rendered=rendered, **options)
