"""Environments by the name that users write after ``gymma:``: from a registry, or what a module has under that name."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium

from unity_bridge.simulators.foreign.lookup.imports import import_module, package_of, parameters_of
from unity_bridge.simulators.foreign.lookup.libraries import (
    LIBRARIES,
    library_called,
    library_of,
    nearest_id,
)
from unity_bridge.simulators.scene import SceneError

Maker = Callable[..., Any]
"""Makes an environment of keyword arguments; ``rendered`` says whether render() will be called."""

_PLAYERS = ("number_of_left_players_agent_controls", "number_of_right_players_agent_controls")
_DRAWING: Mapping[str, Any] = {"render_mode": "rgb_array"}


def find_maker(name: str) -> Maker:
    """What makes the environment of a name.

    ``module:ID`` imports the module, which registers ID with Gymnasium or with gym, or has a class or function of that
    name. An ID alone is one of a library that is known, or of Gymnasium.

    Args:
        name: what stands after ``gymma:``.

    Raises:
        SceneError: there is no such environment, or what it needs is not installed. Says what to install.
    """
    module, colon, env_id = name.rpartition(":")
    if not env_id:
        raise SceneError(f"gymma:{name}: expected an ID after '{module}:'")
    if not colon:
        library = library_of(env_id)
        module = library.module if library else ""
    found = None
    if module:
        found = import_module(
            f"gymma:{name}", module, lambda missing: _missing(module, missing.partition(".")[0])
        )
    if module == "gfootball":
        return partial(make_football, env_id)
    if env_id in gymnasium.registry:
        return _drawing(partial(gymnasium.make, env_id, disable_env_checker=True))
    if env_id in _gym_specs():
        return _gym_maker(env_id)
    if callable(own := getattr(found, env_id, None)):
        return _drawing(own) if "render_mode" in parameters_of(own) else _undrawn(own)
    raise SceneError(f"gymma:{name}: {_unknown(module, env_id, found)}")


def _drawing(make: Maker) -> Maker:
    """Makes environments that are asked for pictures at the beginning."""

    def made(*, rendered: bool = False, **kwargs: Any) -> Any:
        return make(**{**(_DRAWING if rendered else {}), **kwargs})

    return made


def _undrawn(make: Maker) -> Maker:
    def made(*, rendered: bool = False, **kwargs: Any) -> Any:
        return make(**kwargs)

    return made


def make_football(scenario: str, *, rendered: bool = False, **kwargs: Any) -> Any:
    """The environment of a scenario of Google Research Football, in which each agent is a player.

    An agent sees the 115 numbers of ``simple115v2`` unless ``representation`` says otherwise. It earns goals; with
    ``rewards="scoring,checkpoints"`` also 0.1 for each tenth of the way to the goal that its player has brought
    the ball for the first time in an episode.

    Args:
        scenario: such as ``academy_3_vs_1_with_keeper``.
        rendered: without effect: it draws whenever it is asked.
        kwargs: of ``gfootball.env.create_environment``.

    Raises:
        SceneError: fewer than two players are controlled; or it plays a single one, with another interface.
    """
    if sum(int(kwargs.get(name, 0)) for name in _PLAYERS) < 2:
        raise SceneError(
            f"how many players are agents? expected two or more, such as --env-kwargs '{{\"{_PLAYERS[0]}\": 3}}'"
        )
    football = importlib.import_module("gfootball.env")
    return football.create_environment(env_name=scenario, **{"representation": "simple115v2", **kwargs})


def _missing(module: str, missing: str) -> str:
    library = library_called(module.partition(".")[0])
    if library is not None:
        return f"{missing} is not installed; to install {library.module}: {library.install}"
    if missing == module.partition(".")[0]:
        known = [each.module for each in LIBRARIES]
        near = difflib.get_close_matches(module, known, n=1)
        return f"there is no module {module}" + (f" (did you mean {near[0]}?)" if near else "")
    return f"{module} needs {missing}, which is not installed"


def _gym() -> Any:
    """The older gym if something has imported it; otherwise there is nothing in its registry."""
    return sys.modules.get("gym")


def _gym_specs() -> Mapping[str, Any]:
    registry = getattr(getattr(_gym(), "envs", None), "registry", {})
    specs: Mapping[str, Any] = getattr(registry, "env_specs", registry)
    return specs


def _gym_maker(env_id: str) -> Maker:
    make = _gym().make
    if "disable_env_checker" not in parameters_of(make):  # before 0.24: render() is told how to draw
        return _undrawn(partial(make, env_id))
    return _drawing(partial(make, env_id, disable_env_checker=True))


def _unknown(module: str, env_id: str, found: Any) -> str:
    if not module:
        examples = ", ".join(f"{each.example} ({each.module})" for each in LIBRARIES)
        near = nearest_id(env_id) or next(iter(difflib.get_close_matches(env_id, _known_ids(), n=1)), "")
        hint = f" (did you mean {near}?)" if near else ""
        return f"there is no such environment{hint}; expected module:ID, or an ID such as {examples}"
    names = [*_registered_by(module), *_classes(found)]
    near = next(iter(difflib.get_close_matches(env_id, names, n=1, cutoff=0.4)), "")
    if near:
        return f"{module} has no environment '{env_id}' (did you mean {near}?)"
    some = (
        f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"
        if names
        else "neither ids nor classes"
    )
    return f"{module} has no environment '{env_id}'; it has {some}"


def _known_ids() -> list[str]:
    return [*gymnasium.registry, *_gym_specs()]


def _registered_by(module: str) -> list[str]:
    package = module.partition(".")[0]
    registered = {**gymnasium.registry, **_gym_specs()}
    return [name for name, spec in registered.items() if package_of(spec) == package]


def _classes(module: Any) -> list[str]:
    return [name for name, _ in inspect.getmembers(module, inspect.isclass) if not name.startswith("_")]
