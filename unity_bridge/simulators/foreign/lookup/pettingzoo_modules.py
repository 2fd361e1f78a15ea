"""Environments by the name that users write after ``pettingzoo:``, a module."""

from __future__ import annotations

import difflib
import importlib.util
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

from unity_bridge.simulators.foreign.lookup.imports import import_module
from unity_bridge.simulators.scene import SceneError

Maker = Callable[..., Any]
"""Makes an environment of keyword arguments; ``rendered`` says whether render() will be called."""

INSTALL = "run: pip install 'trainer-service[pettingzoo]'"
_OF_THE_EXTRA = ("gymnasium", "mpe2", "pettingzoo", "pygame")


_FAMILIES = ("atari", "butterfly", "classic", "mpe", "sisl")
"""Packages within PettingZoo: ``classic.tictactoe_v3`` is ``pettingzoo.classic.tictactoe_v3``."""


def find_maker(module: str, *, aec: bool = False) -> Maker:
    """What makes the environment of a module.

    A ``parallel_env`` has agents that act at the same time, an ``env`` agents that act in turn (AEC), which is taken
    where there is nothing else.

    Args:
        module: importable from here, such as ``mpe2.simple_spread_v3``; or without ``pettingzoo.`` before it.
        aec: take ``env`` even where there is a ``parallel_env``.

    Raises:
        SceneError: there is no such module, it cannot be imported, or it makes no environments.
    """
    called, full = f"pettingzoo:{module}", _full_name(module)
    found = import_module(called, full, lambda missing: _missing(full, missing))
    parallel, in_turn = getattr(found, "parallel_env", None), getattr(found, "env", None)
    if callable(in_turn) and (aec or not callable(parallel)):
        return partial(_made, in_turn)
    if aec and callable(parallel):
        raise SceneError(f"{called}: --aec: expected a function env in it, it has only parallel_env")
    if callable(parallel):
        return partial(_made, parallel)
    raise SceneError(f"{called}: no PettingZoo module: expected a function parallel_env or env in it")


def _made(make: Callable[..., Any], *, rendered: bool = False, **kwargs: Any) -> Any:
    return make(**{**({"render_mode": "rgb_array"} if rendered else {}), **kwargs})


def _full_name(module: str) -> str:
    family = module.partition(".")[0]
    is_ours = family in _FAMILIES and importlib.util.find_spec(family) is None
    return f"pettingzoo.{module}" if is_ours else module


def _missing(module: str, missing: str) -> str:
    """What is said where a module cannot be imported, because another or itself is missing."""
    if missing in _OF_THE_EXTRA:
        return f"{missing} is not installed; {INSTALL}"
    if f"{module}.".startswith(f"{missing}."):
        return f"there is no module {module}{_nearest(module)}"
    package, _, rest = module.partition(".")
    family = rest.partition(".")[0]
    hint = (
        f"; run: pip install 'pettingzoo[{family}]'"
        if package == "pettingzoo" and family in _FAMILIES
        else ""
    )
    return f"{module} needs {missing.partition('.')[0]}, which is not installed{hint}"


def _nearest(module: str) -> str:
    package, _, name = module.rpartition(".")
    if not package:
        homes = ("mpe2", *(f"pettingzoo.{family}" for family in _FAMILIES))
        found = next((home for home in homes if name in _modules_in(home)), "")
        return f" (did you mean {found}.{name}?)" if found else ""
    near = difflib.get_close_matches(name, _modules_in(package), n=1)
    return f" (did you mean {package}.{near[0]}?)" if near else ""


def _modules_in(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.submodule_search_locations:
        return []
    return [each.name for each in pkgutil.iter_modules(spec.submodule_search_locations)]
