"""Suggestions for a name that is no environment: one of ours or of a library that is spelt alike."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unity_bridge.names import nearest_choice
from unity_bridge.simulators import SIMULATOR_PLUGINS
from unity_bridge.simulators.foreign.lookup.libraries import library_called, library_of

_SCHEMES = {
    "sim": "sim", "gym": "gym", "gymnasium": "gym", "gymma": "gymma", "pettingzoo": "pettingzoo", "pz": "pettingzoo",
}  # fmt: skip
"""Schemes as people write them, and as they are."""

_PETTINGZOO_PACKAGES = (
    "mpe2", "pettingzoo.butterfly", "pettingzoo.classic", "pettingzoo.sisl", "pettingzoo.mpe",
)  # fmt: skip
_VERSIONED = re.compile(r"-v\d+$")
_ALIKE = 0.8
"""Similarity of names from which one is suggested, from 0 to 1: a misspelt path shall not become a game."""


def closest_environment(env: str, scenes: Iterable[str]) -> str:
    """The nearest name that ``--env`` takes, with its scheme; empty if nothing is near.

    Args:
        env: as the user wrote it.
        scenes: the names of ours, without the scheme.
    """
    scheme, _, name = env.strip().partition(":")
    schemes = {**_SCHEMES, **{offered: offered for offered in SIMULATOR_PLUGINS.offered()}}
    if name and (near := nearest_choice(scheme, schemes, similarity=_ALIKE)):
        return f"{schemes[near]}:{name}"
    library = library_called(scheme) or (library_of(env) if not name and _VERSIONED.search(env) else None)
    if library:
        return f"{library.scheme}:{env}"
    if name and _is_module_of_the_user(scheme):
        return f"gym:{env}"
    if "/" in env or "\\" in env:
        return ""
    known = {**dict(_of_libraries()), **{name: f"sim:{name}" for name in scenes}}
    near = nearest_choice(env, known, similarity=_ALIKE)
    return known[near] if near else ""


def _of_libraries() -> Iterator[tuple[str, str]]:
    """Pairs of a name without its scheme, and with it."""
    for module in _pettingzoo_modules():
        yield module, f"pettingzoo:{module}"
        yield module.rpartition(".")[2], f"pettingzoo:{module}"
    yield from ((name, f"gym:{name}") for name in _gym_ids())


def _gym_ids() -> Sequence[str]:
    try:
        import gymnasium
    except ImportError:
        return ()
    return tuple(gymnasium.registry)


def _pettingzoo_modules() -> Iterator[str]:
    for package in _PETTINGZOO_PACKAGES:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            continue
        places = (spec and spec.submodule_search_locations) or ()
        yield from (f"{package}.{each.name}" for each in pkgutil.iter_modules(places) if "_v" in each.name)


def _is_module_of_the_user(name: str) -> bool:
    return name.isidentifier() and (Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file())
