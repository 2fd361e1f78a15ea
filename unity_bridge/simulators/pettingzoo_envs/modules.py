"""The import of ``pettingzoo:MODULE`` as environments with agents that act at the same time."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from typing import Any

from pettingzoo.utils.conversions import aec_to_parallel

from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded

INSTALL = "run: pip install 'trainer-service[pettingzoo]'"
_OF_THE_EXTRA = ("gymnasium", "mpe2", "pettingzoo", "pygame")


def find_environment(module: str) -> Callable[..., Any]:
    """The function that makes the environment of a module: its ``parallel_env``, or else its ``env``.

    An ``env`` makes environments with agents that act in turn (AEC); PettingZoo's own wrapper makes those parallel.

    Args:
        module: importable from here, such as ``mpe2.simple_spread_v3``.

    Raises:
        SceneError: there is no such module, it cannot be imported, or it makes no environments.
    """
    found = _import(module)
    if callable(parallel := getattr(found, "parallel_env", None)):
        return _with_known_agents(module, parallel)
    if callable(in_turn := getattr(found, "env", None)):
        return _with_known_agents(module, lambda **kwargs: _parallel(in_turn(**kwargs)))
    raise SceneError(
        f"pettingzoo:{module}: no PettingZoo module: expected a function parallel_env or env in it"
    )


def _with_known_agents(module: str, make: Callable[..., Any]) -> Callable[..., Any]:
    def make_checked(**kwargs: Any) -> Any:
        env = call_guarded(f"pettingzoo:{module}", "making it", lambda: make(**kwargs))
        if not getattr(env, "possible_agents", None):
            raise SceneError(f"pettingzoo:{module}: it does not say who its possible_agents are")
        return env

    return make_checked


def _parallel(env: Any) -> Any:
    if not getattr(env, "metadata", {}).get("is_parallelizable"):
        raise SceneError(
            "its agents take turns, and PettingZoo cannot make it parallel "
            "(its metadata do not say is_parallelizable)"
        )
    return aec_to_parallel(env)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SceneError(f"pettingzoo:{module}: {_missing(module, error.name or '')}") from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(
            f"pettingzoo:{module}: importing it raised {type(error).__name__}: {text}"
        ) from error


def _missing(module: str, missing: str) -> str:
    """The reason why a module cannot be imported, because another or itself is missing."""
    if missing in _OF_THE_EXTRA:
        return f"{missing} is not installed; {INSTALL}"
    if f"{module}.".startswith(f"{missing}."):
        return f"there is no module {module}{_nearest(module)}"
    return f"it needs {missing.partition('.')[0]}, which is not installed"


def _nearest(module: str) -> str:
    package, _, name = module.rpartition(".")
    try:
        spec = importlib.util.find_spec(package) if package else None
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.submodule_search_locations:
        return ""
    siblings = [each.name for each in pkgutil.iter_modules(spec.submodule_search_locations)]
    near = difflib.get_close_matches(name, siblings, n=1)
    return f" (did you mean {package}.{near[0]}?)" if near else ""
