"""Environments by the name that users write after ``gym:``: a registered ID, or a factory of their own."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from unity_bridge.simulators.foreign.lookup.imports import import_module, package_of, parameters_of
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

_LIBRARIES = {
    "ALE/": ("ale_py", "atari"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
}
"""By how ids begin: the module that registers them, and the extra that installs it."""

_DRAWING: Mapping[str, Any] = {"render_mode": "rgb_array"}


@dataclass(frozen=True, slots=True)
class GymnasiumMaker:
    """What makes the environments of a name. It can be sent to other processes."""

    called: str
    """As the user wrote the environment, for messages."""

    name: str
    """What stands after ``gym:``."""

    kwargs: Mapping[str, Any]
    """Keyword arguments of the environment."""

    @property
    def behavior(self) -> str:
        """The name without its module and namespace: ``ALE/Pong-v5`` is ``Pong-v5``."""
        return self.name.rpartition(":")[2].rpartition("/")[2]

    def __call__(self, count: int | None = None, *, rendered: bool = False) -> Any:
        """Makes an environment, or what a factory of the user returns.

        Args:
            count: for a factory that takes ``num_envs``, because it makes a vector environment.
            rendered: whether render() will be called.

        Raises:
            SceneError: there is no such environment, or making it raised something.
        """
        factory = self._factory()
        drawing = _DRAWING if rendered else {}
        if factory is None:
            return self._make(gymnasium.make, self._registered_id(), disable_env_checker=True, **drawing)
        takes = parameters_of(factory)
        given: dict[str, Any] = {**drawing, "num_envs": count}
        wanted = {name: value for name, value in given.items() if name in takes and value is not None}
        return ForeignCode(self.called).call("make()", factory, **{**wanted, **self.kwargs})

    def vectorized(self, count: int, *, rendered: bool = False) -> Any:
        """A vector environment of so many copies, made by the environment's own ``vector_entry_point``.

        Raises:
            SceneError: it has none, or making it raised something.
        """
        if self._factory() is not None:
            raise SceneError(
                f"{self.called}: --vector vector_entry_point is for ids that are registered; a function may return "
                "a gymnasium.vector.VectorEnv by itself"
            )
        mode = {"num_envs": count, "vectorization_mode": "vector_entry_point"}
        return self._make(gymnasium.make_vec, self._registered_id(), **mode, **(_DRAWING if rendered else {}))

    def _factory(self) -> Callable[..., Any] | None:
        """The function or class that ``module:NAME`` means; None where NAME is an id that is registered.

        Raises:
            SceneError: the module cannot be imported, or has nothing of that name.
        """
        module, _, name = self.name.rpartition(":")
        if not module:
            return None
        found = import_module(self.called, module)
        own: Callable[..., Any] | None = getattr(found, name, None) if name.isidentifier() else None
        if callable(own):
            return own
        if not _is_registered(name):
            raise SceneError(f"{self.called}: {_unknown(found, module, name)}")
        return None

    def _registered_id(self) -> str:
        """What Gymnasium shall make; the module of a library that is known is imported for it."""
        module, _, env_id = self.name.rpartition(":")
        library = next((each for start, each in _LIBRARIES.items() if env_id.startswith(start)), None)
        if not module and library is not None and env_id not in gymnasium.registry:
            install = f"run: pip install 'trainer-service[{library[1]}]'"
            import_module(self.called, library[0], lambda missing: f"{missing} is not installed; {install}")
        return env_id

    def _make(self, make: Callable[..., Any], env_id: str, **how: Any) -> Any:
        return ForeignCode(self.called).call("make()", make, env_id, **how, **self.kwargs)


def _is_registered(env_id: str) -> bool:
    """Whether Gymnasium knows an id, with its version or without."""
    return env_id in gymnasium.registry or any(
        each.rpartition("-v")[0] == env_id for each in gymnasium.registry
    )


def _unknown(found: Any, module: str, name: str) -> str:
    """What a module has instead of a name."""
    package = module.partition(".")[0]
    ids = [each for each, spec in gymnasium.registry.items() if package_of(spec) == package]
    own = [each for each, _ in inspect.getmembers(found, _is_callable_of(module)) if not each.startswith("_")]
    known = [*own, *ids]
    near = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.4)), "")
    if near:
        return f"{module} has no environment '{name}' (did you mean {near}?)"
    some = ", ".join(known[:3]) + (" and more" if len(known) > 3 else "")
    return f"{module} has no environment '{name}'; it has {some or 'neither functions, classes nor ids'}"


def _is_callable_of(module: str) -> Callable[[Any], bool]:
    package = module.partition(".")[0]
    return lambda each: callable(each) and str(getattr(each, "__module__", "")).partition(".")[0] == package
