"""An environment that is an object of the user's own program: as it is, or as bytes for another process."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from unity_bridge.errors import LaunchError
from unity_bridge.extras import install_hint
from unity_bridge.simulators.objects import PickledContent, name_of, open_object, with_spec
from unity_bridge.simulators.own_scene import is_scene
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.simulators.schemes import PROGRAM, SceneRequest

_NOT_HERE = "gymnasium."
"""Modules whose environments every process knows."""


@dataclass(frozen=True, eq=False)
class ProgramEnvironment:
    """An environment, each copy of which begins as it is now; or a function or class that makes one.

    Environments that were registered with Gymnasium in this process are known to the others, too, and modules are found
    in the same places. The bytes reach them through their standard input, from this process alone.
    """

    given: Any = field(repr=False)
    """The environment or its factory, without parameters that have to be given."""

    makes_one: bool
    """Whether it is a factory."""

    name: str
    """The name of it in messages."""

    @property
    def env(self) -> str:
        """The value of ``env_path``: ``python:NAME``."""
        return f"{PROGRAM.name}:{self.name}"

    def open(self, env: str, **settings: Any) -> Scene:
        """Opens it as a scene in this process; called as ``open_scene``. Raises SceneError."""
        return open_object(
            lambda: self.given if self.makes_one else self._copy, env, SceneRequest(**settings)
        )

    def _copy(self) -> Any:
        try:
            return with_spec(*copy.deepcopy((self.given, _spec_of(self.given))))
        except Exception as error:
            raise SceneError(
                f"it cannot be copied: {type(error).__name__}: {error}; pass a function that makes all of it, such as "
                "env=lambda: MyEnvironment(...)"
            ) from error

    @cached_property
    def content(self) -> bytes:
        """The bytes that another process opens it from.

        Raises:
            LaunchError: cloudpickle is not installed, or it cannot be packed.
        """
        given = self.given if self.makes_one else (self.given, _spec_of(self.given))
        packed = PickledContent(
            environment=_pickled(given, makes_one=self.makes_one),
            makes_one=self.makes_one,
            module_folders=tuple(sys.path),
            registered=_registered(),
        )
        return pickle.dumps(packed)


def is_environment(given: Any) -> bool:
    """Whether this is a scene or an environment of Gymnasium or PettingZoo, and not a factory."""
    if isinstance(given, type):
        return False
    return is_scene(given) or (callable(getattr(given, "step", None)) and hasattr(given, "reset"))


def program_environment(given: Any, kwargs: Mapping[str, Any] | None = None) -> ProgramEnvironment:
    """Returns an environment, or a function that makes one, as one that simulators can host.

    Args:
        given: an environment, or a function or class.
        kwargs: arguments of that function.

    Raises:
        LaunchError: arguments are given to an environment.
    """
    if is_environment(given):
        if kwargs:
            raise LaunchError(
                "env_kwargs: expected none for an environment that is made already; pass what makes it"
            )
        return ProgramEnvironment(given, False, name_of(given))
    called = given if hasattr(given, "__name__") else getattr(given, "func", type(given))  # of a partial
    name = str(getattr(called, "__name__", type(given).__name__)).strip("<>")
    return ProgramEnvironment(partial(given, **kwargs) if kwargs else given, True, name)


def _spec_of(given: Any) -> Any:
    """The spec that Gymnasium made an environment by, which some lose by being copied."""
    return getattr(getattr(given, "unwrapped", given), "spec", None)


def _pickled(given: Any, *, makes_one: bool) -> bytes:
    dumps = _cloudpickle()
    try:
        return dumps(given)
    except Exception as error:
        what = "what makes the environment" if makes_one else "the environment"
        text = " ".join(str(error).split())
        raise LaunchError(
            f"env: {what} runs in a process of its own and cannot be sent there: {type(error).__name__}: {text}; pass "
            "a function that makes all of it, such as env=lambda: MyEnvironment(...), or isolate=False"
        ) from error


def _registered() -> tuple[bytes, ...]:
    """Pickles the registered Gymnasium environments that other processes may not know, where that is possible."""
    gymnasium = sys.modules.get("gymnasium")
    dumps = _cloudpickle()
    found = []
    for spec in () if gymnasium is None else gymnasium.registry.values():
        if not str(spec.entry_point).startswith(_NOT_HERE):
            try:
                found.append(dumps(spec))
            except Exception:  # whatever code of others raises; it may not be needed
                continue
    return tuple(found)


def _cloudpickle() -> Callable[[Any], bytes]:
    try:
        from cloudpickle import dumps
    except ModuleNotFoundError:
        raise LaunchError(
            "env: cloudpickle is not installed, which sends an environment to another process; run: "
            + install_hint("gym")
        ) from None
    return dumps  # type: ignore[no-any-return]
