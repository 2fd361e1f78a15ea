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

from unity_bridge.simulators.gymma_envs.football import make_football
from unity_bridge.simulators.gymma_envs.libraries import (
    LIBRARIES,
    library_called,
    library_of,
    nearest_id,
)
from unity_bridge.simulators.scene import SceneError

Maker = Callable[..., Any]
"""Makes an environment of keyword arguments."""

_DRAWING: Mapping[str, Any] = {"render_mode": "rgb_array"}


def find_maker(name: str, *, rendered: bool = False) -> Maker:
    """What makes the environment of a name.

    ``module:ID`` imports the module, which registers ID with Gymnasium or with gym, or has a class or function of that
    name. An ID alone is one of a library that is known, or of Gymnasium.

    Args:
        name: what stands after ``gymma:``.
        rendered: ask for pictures at the beginning, where the environment wants to be asked then.

    Raises:
        SceneError: there is no such environment, or what it needs is not installed. Says what to install.
    """
    module, colon, env_id = name.rpartition(":")
    if not env_id:
        raise SceneError(f"gymma:{name}: expected an ID after '{module}:'")
    if not colon:
        library = library_of(env_id)
        module = library.module if library else ""
    found = _import(name, module) if module else None
    drawing: Mapping[str, Any] = _DRAWING if rendered else {}
    if module == "gfootball":
        return partial(make_football, env_id)
    if env_id in gymnasium.registry:
        return partial(gymnasium.make, env_id, disable_env_checker=True, **drawing)
    if env_id in _gym_specs():
        return _gym_maker(env_id, drawing)
    if callable(own := getattr(found, env_id, None)):
        return partial(own, **(drawing if "render_mode" in inspect.signature(own).parameters else {}))
    raise SceneError(f"gymma:{name}: {_unknown(module, env_id, found)}")


def _import(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise SceneError(f"gymma:{name}: {_missing(module, missing)}") from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"gymma:{name}: importing {module} raised {type(error).__name__}: {text}") from error


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


def _gym_maker(env_id: str, drawing: Mapping[str, Any]) -> Maker:
    make = _gym().make
    if (
        "disable_env_checker" not in inspect.signature(make).parameters
    ):  # before 0.24: render() is told how to draw
        return partial(make, env_id)
    return partial(make, env_id, disable_env_checker=True, **drawing)


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
    return [name for name, spec in registered.items() if _package_of(spec) == package]


def _package_of(spec: Any) -> str:
    entry = spec.entry_point
    where = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return where.replace(":", ".").partition(".")[0]


def _classes(module: Any) -> list[str]:
    return [name for name, _ in inspect.getmembers(module, inspect.isclass) if not name.startswith("_")]
