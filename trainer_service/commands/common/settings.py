"""Settings given beside a configuration: by flags of ``learn``, or as arguments of ``train``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_type_hints

from unity_bridge.names import did_you_mean

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

ATTACH_PORT = ("host", "port", "insecure_listen", "tls_cert", "tls_key", "token_file")
"""Flags of the port at which simulators attach."""

# Nothing else of the package: the command line answers --help before pydantic or torch are loaded.


class Setting(NamedTuple):
    """A key of the configuration that has a flag and an argument of its own."""

    path: str
    """Where it stands in the configuration, such as ``env_settings.num_envs``."""

    flag: str
    kind: str
    """The type of the flag's value: ``int``, ``float``, ``str``, ``bool`` (a flag without a value) or ``list``."""

    metavar: str
    help: str


def nested(given: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The settings among what was given, nested as in a file; None leaves a setting as it is."""
    overrides: dict[str, Any] = {}
    for name, setting in settings.items():
        if given.get(name) is None:
            continue
        value = given[name]
        put(overrides, setting.path.split("."), os.fspath(value) if isinstance(value, os.PathLike) else value)
    return overrides


def put(overrides: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets a value in nested mappings, which are made where they are missing."""
    *above, key = path
    for part in above:
        if not isinstance(overrides.get(part), dict):
            overrides[part] = {}
        overrides = overrides[part]
    overrides[key] = value


def put_texts(overrides: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Returns the settings with the texts of ``--set``. Raises ConfigError for a text that cannot be read."""
    if texts:
        from trainer_service.config.reading.settings import read_setting

        for text in texts:
            put(overrides, *read_setting(text))
    return overrides


def named(function: Callable[_Given, _Result], arguments: type) -> Callable[_Given, _Result]:
    """The function, whose signature tells the names in ``**`` that a ``TypedDict`` has: notebooks complete them."""
    signature = inspect.signature(function)
    fixed = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    keys = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in get_type_hints(arguments).items()
    ]
    setattr(function, "__signature__", signature.replace(parameters=[*fixed, *keys]))  # noqa: B010  # mypy
    return function


def require_known(given: Mapping[str, Any], known: Mapping[str, Any], function: str) -> None:
    """Raises TypeError, as Python does, for an argument of a function that is none of those known."""
    for name in given.keys() - known.keys():
        hint = did_you_mean(name, known)
        raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")
