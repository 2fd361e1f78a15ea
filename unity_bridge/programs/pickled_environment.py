"""An environment of the user's own program on its way into a simulator's process."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from unity_bridge.errors import LaunchError
from unity_bridge.programs.executables import Command
from unity_bridge.simulators import PROGRAM_SCHEME
from unity_bridge.simulators.pickled import PickledContent, name_of

_NOT_HERE = "gymnasium."
"""Modules whose environments every process knows."""


@dataclass(frozen=True, slots=True)
class PickledEnvironment:
    """An environment, or a factory of one, as bytes for another process of this program's own.

    They reach it through its standard input, from this process alone.
    """

    name: str
    """By which messages call it."""

    content: bytes = field(repr=False)

    @property
    def env(self) -> str:
        """The value of ``env_path``: ``python:NAME``."""
        return f"{PROGRAM_SCHEME}:{self.name}"

    def command(self, arguments: Sequence[str] = ()) -> Command:
        """The program that hosts it."""
        return Command(
            env=self.env,
            executable=(sys.executable, "-m", "unity_bridge.simulators", self.env),
            arguments=tuple(arguments),
            is_bundled=True,
            stdin=self.content,
        )


def is_environment(given: Any) -> bool:
    """Whether this is an environment of Gymnasium or PettingZoo, and not a factory."""
    return not isinstance(given, type) and callable(getattr(given, "step", None)) and hasattr(given, "reset")


def pickle_environment(given: Any, kwargs: Mapping[str, Any] | None = None) -> PickledEnvironment:
    """Packs an environment, or a function that makes one, for simulators.

    Environments that were registered with Gymnasium in this process are known to them, too, and modules are found in
    the same places.

    Args:
        given: an environment, each copy of which begins as it is now; or a function or class.
        kwargs: arguments of that function.

    Raises:
        LaunchError: cloudpickle is not installed, it cannot be packed, or arguments are given to an environment.
    """
    makes_one = not is_environment(given)
    if not makes_one:
        if kwargs:
            raise LaunchError(
                "env_kwargs: expected none for an environment that is made already; pass what makes it"
            )
        name = name_of(given)
        given = (given, getattr(getattr(given, "unwrapped", given), "spec", None))
    else:
        called = given if hasattr(given, "__name__") else getattr(given, "func", type(given))  # of a partial
        name = str(getattr(called, "__name__", type(given).__name__)).strip("<>")
    content = PickledContent(
        environment=_pickled(partial(given, **kwargs) if kwargs else given, makes_one=makes_one),
        makes_one=makes_one,
        module_folders=tuple(sys.path),
        registered=_registered(),
    )
    return PickledEnvironment(name, pickle.dumps(content))


def _pickled(given: Any, *, makes_one: bool) -> bytes:
    dumps = _cloudpickle()
    try:
        return dumps(given)
    except Exception as error:
        what = "what makes the environment" if makes_one else "the environment"
        text = " ".join(str(error).split())
        raise LaunchError(
            f"env: {what} runs in a process of its own and cannot be sent there: {type(error).__name__}: {text}; pass "
            "a function that makes all of it, such as env=lambda: MyEnvironment(...)"
        ) from error


def _registered() -> tuple[bytes, ...]:
    """Gymnasium's environments that other processes may not know, except those that cannot be packed."""
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
            "pip install 'trainer-service[gym]'"
        ) from None
    return dumps  # type: ignore[no-any-return]
