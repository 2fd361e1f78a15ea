"""Environments by the name that users write after ``gym:`` and ``gymma:``: an ID, or a function of a module."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from unity_bridge.simulators.foreign.lookup.imports import import_module, parameters_of
from unity_bridge.simulators.foreign.lookup.libraries import LIBRARIES, library_called, library_of, nearest_id
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.schemes import SCHEMES
from unity_bridge.simulators.third_party import ForeignCode

_DRAWING: Mapping[str, Any] = {"render_mode": "rgb_array"}
_PLAYERS = ("number_of_left_players_agent_controls", "number_of_right_players_agent_controls")


@dataclass(frozen=True, slots=True)
class Maker:
    """A factory of the environments of a name. It can be sent to other processes.

    ``module:NAME`` imports the module, which has a function or class of that name, or registers it as an ID with
    Gymnasium or the older gym. An ID alone is one of a library that is known, or of Gymnasium.
    """

    env: str
    """``gym:NAME`` or ``gymma:NAME``, as the user wrote it."""

    kwargs: Mapping[str, Any]
    """Keyword arguments of the environment."""

    @property
    def name(self) -> str:
        """The name without its module and namespace: ``ALE/Pong-v5`` is ``Pong-v5``."""
        return self._parts()[1].rpartition("/")[2]

    def __call__(self, count: int | None = None, *, rendered: bool = False) -> Any:
        """Makes an environment, or returns the result of a user's function.

        Args:
            count: for a function that takes ``num_envs``, because it makes a vector environment.
            rendered: whether render() will be called.

        Raises:
            SceneError: there is no such environment, a requirement is not installed, or its constructor raised.
        """
        module, name = self._parts()
        found = self._imported()
        offered: dict[str, Any] = {**(_DRAWING if rendered else {}), "num_envs": count}
        if module == "gfootball":
            return self._make(_football, name)
        own = getattr(found, name, None) if name.isidentifier() else None
        if callable(own):
            takes = parameters_of(own)
            given = {key: value for key, value in offered.items() if key in takes and value is not None}
            return self._make(own, **given)
        make = self._registered_maker(found)
        offered = {"disable_env_checker": True, **(_DRAWING if rendered else {})}
        # Before 0.24 gym knew neither: render() was told how to draw.
        is_old = make is not gymnasium.make and "disable_env_checker" not in parameters_of(make)
        return self._make(make, name, **({} if is_old else offered))

    def vectorized(self, count: int, *, rendered: bool = False) -> Any:
        """Makes a vector environment by the environment's own ``vector_entry_point``.

        Raises:
            SceneError: it has none, or making it raised something.
        """
        name = self._parts()[1]
        if callable(getattr(self._imported(), name, None)):
            raise SceneError(
                f"{self.env}: --vector vector_entry_point is for ids that are registered; a function may return "
                "a gymnasium.vector.VectorEnv by itself"
            )
        mode = {"num_envs": count, "vectorization_mode": "vector_entry_point"}
        return self._make(gymnasium.make_vec, name, **mode, **(_DRAWING if rendered else {}))

    def _parts(self) -> tuple[str, str]:
        """The module, of a known library where the user names none, and the name within it."""
        module, colon, name = self.env.partition(":")[2].rpartition(":")
        library = None if colon else library_of(name)
        return (library.module if library else module), name

    def _imported(self) -> Any:
        """The module; None without one, and where the older gym or Gymnasium know the ID already."""
        module, name = self._parts()
        if not name:
            raise SceneError(f"{self.env}: expected an ID after '{module}:'")
        has_module = ":" in self.env.partition(":")[2]
        if not module or (not has_module and name in gymnasium.registry):
            return None
        return import_module(self.env, module, lambda missing: _missing(module, missing.partition(".")[0]))

    def _registered_maker(self, found: Any) -> Callable[..., Any]:
        """The library's function that makes the ID. Raises SceneError where it is not known."""
        module, name = self._parts()
        if name in _gym_specs():
            make: Callable[..., Any] = sys.modules["gym"].make
            return make
        is_listed = SCHEMES[self.env.partition(":")[0]].kind == "list"
        if name in gymnasium.registry or not (module or is_listed):  # Gymnasium itself says what is nearest
            return gymnasium.make
        if any(each.rpartition("-v")[0] == name for each in gymnasium.registry):
            return gymnasium.make
        raise SceneError(f"{self.env}: {_unknown_in(found, module, name) if module else _unknown(name)}")

    def _make(self, make: Callable[..., Any], *args: Any, **how: Any) -> Any:
        return ForeignCode(self.env).call("make()", make, *args, **{**how, **self.kwargs})


def _football(scenario: str, **kwargs: Any) -> Any:
    """The environment of a scenario of Google Research Football, in which each agent is a player.

    An agent sees the 115 numbers of ``simple115v2`` unless ``representation`` says otherwise. It earns goals; with
    ``rewards="scoring,checkpoints"`` also 0.1 for each tenth of the way to the goal that its player has brought
    the ball for the first time in an episode. It renders on request.

    Args:
        scenario: such as ``academy_3_vs_1_with_keeper``.
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
    near = difflib.get_close_matches(module, [each.module for each in LIBRARIES], n=1)
    is_itself = missing == module.partition(".")[0]
    return f"there is no module {module} (did you mean {near[0]}?)" if near and is_itself else ""


def _gym_specs() -> Mapping[str, Any]:
    """The registry of the older gym if something has imported it; otherwise it is empty."""
    registry = getattr(getattr(sys.modules.get("gym"), "envs", None), "registry", {})
    specs: Mapping[str, Any] = getattr(registry, "env_specs", registry)
    return specs


def _unknown(env_id: str) -> str:
    listed = (each for each in LIBRARIES if SCHEMES[each.scheme].kind == "list")
    examples = ", ".join(f"{each.example} ({each.module})" for each in listed)
    near = nearest_id(env_id) or _nearest(env_id, [*gymnasium.registry, *_gym_specs()], 0.6)
    hint = f" (did you mean {near}?)" if near else ""
    return f"there is no such environment{hint}; expected module:ID, or an ID such as {examples}"


def _unknown_in(found: Any, module: str, name: str) -> str:
    """The message about an unknown name in a module, with near ones."""
    package = module.partition(".")[0]
    registered = {**gymnasium.registry, **_gym_specs()}
    ids = [each for each, spec in registered.items() if _package_of(spec.entry_point) == package]
    own = [
        each
        for each, value in inspect.getmembers(found, callable)
        if not each.startswith("_") and _package_of(value) == package
    ]
    near = _nearest(name, [*own, *ids], 0.4)
    if near:
        return f"{module} has no environment '{name}' (did you mean {near}?)"
    some = ", ".join([*own, *ids][:3]) + (" and more" if len(own) + len(ids) > 3 else "")
    return f"{module} has no environment '{name}'; it has {some or 'neither functions, classes nor ids'}"


def _nearest(name: str, known: list[str], cutoff: float) -> str:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def _package_of(entry: Any) -> str:
    """The package of a function, or of an entry point, ``module:NAME``."""
    where = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return str(where).replace(":", ".").partition(".")[0]
