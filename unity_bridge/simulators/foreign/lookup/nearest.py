"""Suggestions for a name that is no environment: one of ours or of a library that is spelt alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from unity_bridge.names import nearest_choice
from unity_bridge.simulators.foreign.lookup.libraries import library_called, library_of
from unity_bridge.simulators.schemes import known_schemes, load

_VERSIONED = re.compile(r"-v\d+$")
_ALIKE = 0.8
"""Similarity of names from which one is suggested, from 0 to 1: a misspelt path shall not become a game."""


def closest_environment(env: str) -> str:
    """The nearest name that ``--env`` takes, with its scheme; empty if nothing is near.

    env: as the user wrote it.
    """
    scheme, _, name = env.strip().partition(":")
    schemes = {word: each.name for each in known_schemes() for word in (each.name, *each.aliases) if word}
    if name and (near := nearest_choice(scheme, schemes, similarity=_ALIKE)):
        return f"{schemes[near]}:{name}"
    library = library_called(scheme) or (library_of(env) if not name and _VERSIONED.search(env) else None)
    if library:
        return f"{library.scheme}:{env}"
    if name and _is_module_of_the_user(scheme):
        return f"gym:{env}"
    if "/" in env or "\\" in env:
        return ""
    known = dict(_names())
    near = nearest_choice(env, known, similarity=_ALIKE)
    return known[near] if near else ""


def _names() -> Iterator[tuple[str, str]]:
    """Pairs of a name that a scheme knows, without its scheme, and with it."""
    for scheme in reversed(known_schemes()):  # a later one replaces an earlier one: ours win
        try:
            names = load(scheme.names) if scheme.names else ()
        except ImportError:
            continue
        for name in names() if callable(names) else names:
            yield name, f"{scheme.name}:{name}"
            yield name.rpartition(".")[2], f"{scheme.name}:{name}"


def _is_module_of_the_user(name: str) -> bool:
    return name.isidentifier() and (Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file())
