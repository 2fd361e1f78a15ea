"""The options of ``gym:`` environments, and their flags on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from unity_bridge.simulators.scene import Scene, SceneError

OWN_OPTIONS = ("wrap", "vector")
"""Options that no other scene understands."""

VECTOR_MODES = ("sync", "async", "vector_entry_point")
"""Gymnasium's names for how copies are stepped."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that only these environments understand."""
    parser.add_argument(
        "--wrap",
        action="append",
        metavar="WRAPPER[:ARGUMENTS]",
        help="put a wrapper around each copy, Gymnasium's (FrameStackObservation:4, AtariPreprocessing:frame_skip=4) "
        "or a function of your own (module:function); can be repeated, the last one is outermost (gym:)",
    )
    parser.add_argument(
        "--vector",
        choices=VECTOR_MODES,
        help="how copies are stepped: one after the other (sync, the default), each in a process of its own (async), "
        "or by the environment's own vectorized implementation (gym:)",
    )


def open_gym(
    name: str,
    agents: int | None,
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    """The environment of a name.

    Args:
        name: what stands after ``gym:``.
        agents: how many copies; one if None.
        kwargs: of the environment.
        options: by name.
        rendered: whether render() will be called.

    Raises:
        SceneError: Gymnasium is not installed, there is no such environment or wrapper, or it cannot be made.
    """
    try:
        from unity_bridge.simulators.gym_envs.find import Maker  # an extra, and slow to import
        from unity_bridge.simulators.gym_envs.make import make_copies
        from unity_bridge.simulators.gym_envs.scene import GymScene
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise SceneError(
            f"gym:{name}: Gymnasium is not installed; run: pip install 'trainer-service[gym]'"
        ) from None
    except ImportError as error:
        raise SceneError(
            f"gym:{name}: Gymnasium is too old ({error}); run: pip install 'trainer-service[gym]'"
        ) from None
    maker = Maker(f"gym:{name}", name, kwargs or {}, rendered)
    copies = make_copies(maker, agents, options.get("wrap", ()), options.get("vector", "sync"))
    return GymScene(maker.called, maker.behavior, copies)
