"""Environments by the name that users write after ``pettingzoo:``, a module."""

from __future__ import annotations

import difflib
import importlib.util
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unity_bridge.extras import install_hint
from unity_bridge.simulators.foreign.lookup.imports import import_module
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

INSTALL = f"run: {install_hint('pettingzoo')}"
_OF_THE_EXTRA = ("gymnasium", "mpe2", "pettingzoo", "pygame")


_FAMILIES = ("atari", "butterfly", "classic", "mpe", "sisl")
"""Packages within PettingZoo: ``classic.tictactoe_v3`` is ``pettingzoo.classic.tictactoe_v3``."""


@dataclass(frozen=True, slots=True)
class PettingZooMaker:
    """A factory of the environments of a module.

    A ``parallel_env`` has agents that act at the same time, an ``env`` agents that act in turn (AEC), which is taken
    where there is nothing else.
    """

    env: str
    """``pettingzoo:MODULE``; importable from here, or without ``pettingzoo.`` before it."""

    kwargs: Mapping[str, Any]
    """Keyword arguments of the environment."""

    in_turn: bool = False
    """Take ``env`` even where there is a ``parallel_env``."""

    @property
    def name(self) -> str:
        """The last part of the module's name."""
        return self.env.rpartition(".")[2].rpartition(":")[2]

    def __call__(self, count: int | None = None, *, rendered: bool = False) -> Any:
        """Makes an environment; rendered: whether render() will be called.

        Raises:
            SceneError: there is no such module, it makes no environments, or it raised something.
        """
        drawing = {"render_mode": "rgb_array"} if rendered else {}
        return ForeignCode(self.env).call("make()", self._function(), **{**drawing, **self.kwargs})

    def _function(self) -> Any:
        full = _full_name(self.env.partition(":")[2])
        for module in ("pettingzoo", full):
            found = import_module(self.env, module, lambda missing: _missing(full, missing))
        parallel, in_turn = getattr(found, "parallel_env", None), getattr(found, "env", None)
        make = in_turn if callable(in_turn) and (self.in_turn or not callable(parallel)) else parallel
        if not callable(make):
            raise SceneError(
                f"{self.env}: no PettingZoo module: expected a function parallel_env or env in it"
            )
        if self.in_turn and make is parallel:
            raise SceneError(f"{self.env}: --aec: expected a function env in it, it has only parallel_env")
        return make


def _full_name(module: str) -> str:
    family = module.partition(".")[0]
    is_ours = family in _FAMILIES and importlib.util.find_spec(family) is None
    return f"pettingzoo.{module}" if is_ours else module


def _missing(module: str, missing: str) -> str:
    """The message about a module that cannot be imported, because it or another is missing."""
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
        found = next((each for each in installed_modules() if each.endswith(f".{name}")), "")
        return f" (did you mean {found}?)" if found else ""
    near = difflib.get_close_matches(name, _modules_in(package), n=1)
    return f" (did you mean {package}.{near[0]}?)" if near else ""


def installed_modules() -> list[str]:
    """The modules of all environments that are installed."""
    homes = ("mpe2", *(f"pettingzoo.{family}" for family in _FAMILIES))
    return [f"{home}.{name}" for home in homes for name in _modules_in(home) if "_v" in name]


def _modules_in(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.submodule_search_locations:
        return []
    return [each.name for each in pkgutil.iter_modules(spec.submodule_search_locations)]
