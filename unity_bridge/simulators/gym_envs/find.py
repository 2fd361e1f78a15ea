"""Environments by the name that users write after ``gym:``: a registered ID, or a factory of their own."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded

_LIBRARIES = {
    "ALE/": ("ale_py", "atari"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
}
"""By how ids begin: the module that registers them, and the extra that installs it."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What makes the environments of a name. It can be sent to other processes."""

    called: str
    """As the user wrote the environment, for messages."""

    name: str
    """What stands after ``gym:``."""

    kwargs: Mapping[str, Any]
    """Keyword arguments of the environment."""

    rendered: bool = False
    """Whether render() will be called."""

    @property
    def behavior(self) -> str:
        """The name without its module and namespace: ``ALE/Pong-v5`` is ``Pong-v5``."""
        return self.name.rpartition(":")[2].rpartition("/")[2]

    def __call__(self, count: int | None = None) -> Any:
        """Makes an environment, or what a factory of the user returns.

        Args:
            count: for a factory that takes ``num_envs``, because it makes a vector environment.

        Raises:
            SceneError: there is no such environment, or making it raised something.
        """
        factory = self.factory()
        if factory is None:
            mode: dict[str, Any] = {"render_mode": "rgb_array"} if self.rendered else {}
            env_id = self._registered_id()
            return self._guard(
                lambda: gymnasium.make(env_id, disable_env_checker=True, **mode, **self.kwargs)
            )
        takes = parameters_of(factory)
        given: dict[str, Any] = (
            {"render_mode": "rgb_array"} if self.rendered and "render_mode" in takes else {}
        )
        if count is not None and "num_envs" in takes:
            given["num_envs"] = count
        return self._guard(lambda: factory(**{**given, **self.kwargs}))

    def vectorized(self, count: int) -> Any:
        """A vector environment of so many copies, made by the environment's own ``vector_entry_point``.

        Raises:
            SceneError: it has none, or making it raised something.
        """
        if self.factory() is not None:
            raise SceneError(
                f"{self.called}: --vector vector_entry_point is for ids that are registered; a function may return "
                "a gymnasium.vector.VectorEnv by itself"
            )
        mode: dict[str, Any] = {"render_mode": "rgb_array"} if self.rendered else {}
        env_id = self._registered_id()
        return self._guard(
            lambda: gymnasium.make_vec(
                env_id,
                num_envs=count,
                vectorization_mode="vector_entry_point",
                **mode,
                **self.kwargs,
            )
        )

    def factory(self) -> Callable[..., Any] | None:
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
            import_module(self.called, library[0], f"run: pip install 'trainer-service[{library[1]}]'")
        return env_id

    def _guard(self, make: Callable[[], Any]) -> Any:
        return call_guarded(self.called, "make()", make)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function or class by name; none where it does not tell, as what is written in C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def import_module(called: str, module: str, install: str = "") -> Any:
    """The module of that name, from the current folder too.

    Args:
        called: as the user wrote what wants it, for messages.
        module: as Python imports it.
        install: what to do where it is not installed.

    Raises:
        SceneError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if install:
            raise SceneError(f"{called}: {missing} is not installed; {install}") from None
        if f"{module}.".startswith(f"{missing}."):
            raise SceneError(f"{called}: there is no module {module}") from None
        raise SceneError(f"{called}: {module} needs {missing}, which is not installed") from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"{called}: importing {module} raised {type(error).__name__}: {text}") from error


def _is_registered(env_id: str) -> bool:
    """Whether Gymnasium knows an id, with its version or without."""
    return env_id in gymnasium.registry or any(
        each.rpartition("-v")[0] == env_id for each in gymnasium.registry
    )


def _unknown(found: Any, module: str, name: str) -> str:
    """What a module has instead of a name."""
    package = module.partition(".")[0]
    ids = [each for each, spec in gymnasium.registry.items() if _package_of(spec) == package]
    own = [each for each, _ in inspect.getmembers(found, _is_callable_of(module)) if not each.startswith("_")]
    known = [*own, *ids]
    near = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.4)), "")
    if near:
        return f"{module} has no environment '{name}' (did you mean {near}?)"
    some = ", ".join(known[:3]) + (" and more" if len(known) > 3 else "")
    return f"{module} has no environment '{name}'; it has {some or 'neither functions, classes nor ids'}"


def _package_of(spec: Any) -> str:
    entry = spec.entry_point
    where = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return str(where).replace(":", ".").partition(".")[0]


def _is_callable_of(module: str) -> Callable[[Any], bool]:
    package = module.partition(".")[0]
    return lambda each: callable(each) and str(getattr(each, "__module__", "")).partition(".")[0] == package
