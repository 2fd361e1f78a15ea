"""The import of ``pettingzoo:MODULE`` as copies of its environment."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from pettingzoo.utils.conversions import aec_to_parallel

from unity_bridge.simulators.multi_agent_envs.copy import Copy
from unity_bridge.simulators.pettingzoo_envs.parallel import ParallelCopy
from unity_bridge.simulators.pettingzoo_envs.turns import TurnCopy
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded

INSTALL = "run: pip install 'trainer-service[pettingzoo]'"
_OF_THE_EXTRA = ("gymnasium", "mpe2", "pettingzoo", "pygame")


_FAMILIES = ("atari", "butterfly", "classic", "mpe", "sisl")
"""Packages within PettingZoo: ``classic.tictactoe_v3`` is ``pettingzoo.classic.tictactoe_v3``."""


def find_environment(module: str, *, aec: bool = False) -> Callable[..., Copy]:
    """The function that makes copies of the environment of a module.

    A ``parallel_env`` has agents that act at the same time, an ``env`` agents that act in turn (AEC). Where there is
    only the latter, PettingZoo's own wrapper makes it parallel if it says that this is possible.

    Args:
        module: importable from here, such as ``mpe2.simple_spread_v3``; or without ``pettingzoo.`` before it.
        aec: let agents act in turn even where they could act at the same time.

    Raises:
        SceneError: there is no such module, it cannot be imported, or it makes no environments.
    """
    found = _import(module)
    parallel, in_turn = getattr(found, "parallel_env", None), getattr(found, "env", None)
    called = f"pettingzoo:{module}"
    if callable(in_turn) and (aec or not callable(parallel)):
        return lambda **kwargs: _of_turns(_made(called, in_turn, kwargs), called, aec)
    if aec and callable(parallel):
        raise SceneError(f"{called}: --aec: expected a function env in it, it has only parallel_env")
    if callable(parallel):
        return lambda **kwargs: ParallelCopy(_made(called, parallel, kwargs), called)
    raise SceneError(f"{called}: no PettingZoo module: expected a function parallel_env or env in it")


def copy_of(env: Any, called: str, *, aec: bool = False) -> Copy:
    """A copy that is an environment which is made already, parallel or of turns. aec: as for ``find_environment``."""
    return _of_turns(env, called, aec) if callable(getattr(env, "last", None)) else ParallelCopy(env, called)


def _made(called: str, make: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    env = call_guarded(called, "making it", lambda: make(**kwargs))
    if not getattr(env, "possible_agents", None):
        raise SceneError(f"{called}: it does not say who its possible_agents are")
    return env


def _of_turns(env: Any, called: str, aec: bool) -> Copy:
    if not aec and getattr(env, "metadata", {}).get("is_parallelizable"):
        return ParallelCopy(call_guarded(called, "making it parallel", lambda: aec_to_parallel(env)), called)
    return TurnCopy(env, called)


def _import(module: str) -> Any:
    """The module. Raises SceneError where it cannot be imported; messages call it as the user did."""
    found = _full_name(module)
    try:
        return importlib.import_module(found)
    except ModuleNotFoundError as error:
        raise SceneError(f"pettingzoo:{module}: {_missing(found, error.name or '')}") from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(
            f"pettingzoo:{module}: importing it raised {type(error).__name__}: {text}"
        ) from error


def _full_name(module: str) -> str:
    family = module.partition(".")[0]
    is_ours = family in _FAMILIES and importlib.util.find_spec(family) is None
    return f"pettingzoo.{module}" if is_ours else module


def _missing(module: str, missing: str) -> str:
    """The reason why a module cannot be imported, because another or itself is missing."""
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
    return f"it needs {missing.partition('.')[0]}, which is not installed{hint}"


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
